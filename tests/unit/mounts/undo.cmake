anchorhold_test(mounts_undo_test
  SOURCES undo_test.cpp
  LINKS anchorhold_mounts anchorhold_review_core fmt::fmt
  PROGRAMS anchorhold-keeper
  LABELS unit
  TIMEOUT 300)
