anchorhold_test(mounts_undo_test
  SOURCES undo_test.cpp undo_sessions_test.cpp undo_kinds_test.cpp reflink_test.cpp review_test.cpp ledger_seal_test.cpp
  LINKS anchorhold_mounts anchorhold_review_core fmt::fmt nlohmann_json::nlohmann_json
  PROGRAMS anchorhold-keeper anchorhold-ledger
  LABELS unit
  TIMEOUT 300)
target_include_directories(mounts_undo_test PRIVATE ${PROJECT_SOURCE_DIR}/host/mounts/src ${PROJECT_SOURCE_DIR}/host/mounts)
