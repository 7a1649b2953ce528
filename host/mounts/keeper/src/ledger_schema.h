// The tables of a ledger's journal.db, for who writes them (the keeper) and who reads them.
#pragma once

namespace anchorhold::mounts {

inline constexpr int ledger_version = 1;

// object: everything that was recorded or made. What an object is called now is found by its identity in the
// granted folder; path is where it was when the row was made (the session's own: after its last rename).
//   created      1: the session made it. stands: it took the place of something pre-existing.
//   kept         HowKept; kept_name is in kept/. removed: the last name is gone.
//   times        nanoseconds since the epoch. xattrs: see user_xattrs in content.h.
// rename: of pre-existing objects, in order.
inline constexpr const char* ledger_schema = R"sql(
CREATE TABLE IF NOT EXISTS object (
  id INTEGER PRIMARY KEY, device INTEGER NOT NULL, inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL, generation INTEGER NOT NULL,
  created INTEGER NOT NULL, stands INTEGER NOT NULL DEFAULT 0, path BLOB NOT NULL,
  mode INTEGER NOT NULL, size INTEGER NOT NULL, links INTEGER NOT NULL,
  access_ns INTEGER NOT NULL, modify_ns INTEGER NOT NULL, target BLOB, xattrs BLOB,
  kept INTEGER NOT NULL DEFAULT 0, kept_name TEXT, kept_bytes INTEGER NOT NULL DEFAULT 0,
  removed INTEGER NOT NULL DEFAULT 0, noted_ns INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rename (
  number INTEGER PRIMARY KEY AUTOINCREMENT, object INTEGER NOT NULL, old_path BLOB NOT NULL, new_path BLOB NOT NULL,
  exchange INTEGER NOT NULL, noted_ns INTEGER NOT NULL);
PRAGMA user_version = 1;
)sql";

}  // namespace anchorhold::mounts
