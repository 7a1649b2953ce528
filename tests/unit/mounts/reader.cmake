anchorhold_test(mounts_reader_test
  SOURCES reader_reading_test.cpp reader_changes_test.cpp reader_malformed_test.cpp reader_escape_test.cpp
          reader_seal_test.cpp reader_nodes_test.cpp spares_test.cpp watch_test.cpp
  LINKS anchorhold_mounts_reader anchorhold_mounts_spares anchorhold_mounts vsock_front_end
  PROGRAMS anchorhold-fsd anchorhold-keeper anchorhold-spares
  LABELS unit)
