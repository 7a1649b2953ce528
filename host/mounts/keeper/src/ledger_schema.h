// The tables of a ledger's journal.db, for who writes them (the keeper) and who reads them.
#pragma once

namespace anchorhold::mounts {

inline constexpr int ledger_version = 3;

// An epoch is one hand at work: 0 the session, then one for each undo and redo, which keep what they replace
// just as the session's keeper does. Rows of an object are one for each epoch that touched it.
//
// epoch    inverts: the epoch it takes back. ended_ns: 0 while it runs or when it was killed; then, from the
//          first word of somebody else on, less than 0: minus the time of its own last one. taken_back: a
//          redo has taken this undo back.
// object   everything that was recorded or made. What an object is called now is found by its identity in the
//          granted folder; path is where it was before the epoch began (what was made: after its last
//          rename). created  1: this epoch made it. stands: it took the place of something pre-existing. kept
//          HowKept; kept_name is in kept/. removed: the last name is gone. access_s and access_ns, modify_s
//          and modify_ns: seconds since 1970 and nanoseconds, since files may have any of them. Other times
//          are nanoseconds since 1970. xattrs: see user_xattrs in content.h.
// lost     names from before that were (or were about to be) taken from a pre-existing object.
// gained   names that a pre-existing object was given, by their folder's identity; they go with the name.
//          linked: one more name; else the old one was renamed.
// remains  what an object was when we last had it in hand: what differs from it was changed by somebody else.
//          hash: BLAKE2b-256 of the content, NULL when it was too large.
// settled  the last batch of ledger_recent.h whose entries are rows.
inline constexpr const char* ledger_schema = R"sql(
CREATE TABLE IF NOT EXISTS epoch (
  number INTEGER PRIMARY KEY, inverts INTEGER NOT NULL, begun_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL DEFAULT 0,
  taken_back INTEGER NOT NULL DEFAULT 0, paths BLOB);
CREATE TABLE IF NOT EXISTS object (
  id INTEGER PRIMARY KEY, device INTEGER NOT NULL, inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL, generation INTEGER NOT NULL,
  created INTEGER NOT NULL, stands INTEGER NOT NULL DEFAULT 0, path BLOB NOT NULL,
  mode INTEGER NOT NULL, size INTEGER NOT NULL, links INTEGER NOT NULL,
  access_s INTEGER NOT NULL, access_ns INTEGER NOT NULL, modify_s INTEGER NOT NULL, modify_ns INTEGER NOT NULL,
  target BLOB, xattrs BLOB,
  kept INTEGER NOT NULL DEFAULT 0, kept_name TEXT, kept_bytes INTEGER NOT NULL DEFAULT 0,
  removed INTEGER NOT NULL DEFAULT 0, noted_ns INTEGER NOT NULL,
  epoch INTEGER NOT NULL DEFAULT 0, owner INTEGER NOT NULL DEFAULT -1, owner_group INTEGER NOT NULL DEFAULT -1);
CREATE TABLE IF NOT EXISTS lost (object INTEGER NOT NULL, path BLOB NOT NULL, PRIMARY KEY (object, path)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gained (
  number INTEGER PRIMARY KEY, object INTEGER NOT NULL,
  device INTEGER NOT NULL, inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL, generation INTEGER NOT NULL, name BLOB NOT NULL,
  linked INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS remains (
  device INTEGER NOT NULL, inode INTEGER NOT NULL, birth_ns INTEGER NOT NULL, generation INTEGER NOT NULL,
  path BLOB NOT NULL, mode INTEGER NOT NULL, size INTEGER NOT NULL, modify_ns INTEGER NOT NULL, change_ns INTEGER NOT NULL,
  hash BLOB, PRIMARY KEY (inode, device, birth_ns, generation)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settled (one INTEGER PRIMARY KEY, batch INTEGER NOT NULL);
PRAGMA user_version = 3;
)sql";

}  // namespace anchorhold::mounts
