// What a session did to its granted folders, seen from their ledgers: reviewed, undone, and done again. Both
// are carried out by a sealed process (anchorhold-ledger) that can reach the one folder and its ledger and
// nothing else: what is in them is hostile. No program is run on it, no file is opened but to be compared.
//
// A ledger lies in <state>/ledgers/<session>/<grant>/: grant.json says which folder it belongs to and is out
// of the keeper's reach; ledger/ is the keeper's.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "mounts/grant.h"

namespace anchorhold::mounts {

// A grant that a session had, as it is known after it.
struct LedgerPlace {
  std::filesystem::path folder;  // the keeper's
  std::string name;              // of the grant
  std::filesystem::path host_path;
  std::optional<std::string> only_file;
  Mode mode = Mode::rw;
  std::uint64_t device = 0, inode = 0;  // of the granted folder
  std::int64_t birth_ns = 0;
  std::uint64_t quota_bytes = 0;
};

// What a keeper is given when nobody says otherwise.
inline constexpr std::uint64_t default_ledger_quota = 8ull << 30;

// Written when the grant begins to be served. quota_bytes: 0 is the default.
Status write_ledger_place(const std::filesystem::path& grant_folder, const Grant& grant,
                          std::uint64_t quota_bytes);
// The keeper's part of such a folder.
std::filesystem::path keepers_folder(const std::filesystem::path& grant_folder);
// All of a session, by name; none when it had nothing to change.
Result<std::vector<LedgerPlace>> ledgers_of_session(const std::filesystem::path& session_folder);
// Removes them, and with them every way back. Not while the session runs: that is for the caller to see to.
// unavailable while one is being undone; then, too, nothing is removed.
Status forget_ledgers(const std::filesystem::path& session_folder);

// Paths are from the grant and of any bytes.
struct Change {
  // Ordered by what a person should look at first.
  enum class Risk { runs_here, leads_outside, bulk, none };
  enum class Kind { created, modified, renamed, deleted, linked, attributes };
  enum class Object { file, folder, symlink, other };
  Kind kind = Kind::created;
  Object object = Object::file;
  Risk risk = Risk::none;
  std::string risk_reason;  // for a person
  std::string path;         // deleted: where it was
  std::string old_path;     // renamed
  std::uint64_t old_size = 0, size = 0;
  std::uint32_t old_mode = 0, mode = 0;  // permission bits; both 0 where there is none
  bool text = false;                     // a file of text, before and now as far as it is there
  bool content_changed = false;          // renamed: also modified
  bool mode_changed = false, times_changed = false, xattrs_changed = false;
  bool changed_since = false;  // by somebody else, after the session
  std::string target;          // symlink: where it leads
  std::string diff;            // unified; empty when it was not asked for, or there is none
};
std::string_view to_string(Change::Risk risk);
std::string_view to_string(Change::Kind kind);
std::string_view to_string(Change::Object object);

struct UndoRecord {
  std::int64_t number = 0;
  bool redo = false;
  bool finished = false;    // false: it was killed; the next one goes on with it
  bool taken_back = false;  // by a redo
  std::chrono::system_clock::time_point begun{};
  std::vector<std::string> paths;  // none: everything
};

struct Review {
  std::vector<Change> changes;  // risks first, then by path
  std::uint64_t left_out = 0;   // changes beyond the limit
  std::uint64_t objects_kept = 0, bytes_kept = 0, undo_bytes_kept = 0;
  std::vector<UndoRecord> undos;
};

struct ReviewOptions {
  bool diff = false;
  std::vector<std::string> paths{};  // from the grant; none: everything
};
// Errors: not_found (the folder is not there any more, or there is no ledger), failed_precondition (another
// folder is in its place), unavailable (the process that looks died).
Result<Review> review(const LedgerPlace& place, const ReviewOptions& options);

struct UndoOptions {
  bool redo = false;     // takes the latest undo back
  bool force = false;    // also what somebody else changed since
  bool dry_run = false;  // only says what it would do
  std::vector<std::string> paths{};
};

struct UndoStep {
  enum class Kind { removed, put_back, moved_back, linked, content, attributes, left_in_place };
  Kind kind = Kind::removed;
  std::string path;
  std::string from;  // moved_back
};
std::string_view to_string(UndoStep::Kind kind);

struct UndoRefusal {
  std::string path;
  std::string reason;
};

struct UndoOutcome {
  std::vector<UndoStep> steps;
  std::vector<UndoRefusal> refused;
  std::int64_t number = 0;  // of the undo, 0: nothing was changed
};
// Only one at a time for a ledger (unavailable), and not while the session runs: that is for the caller to
// see to. Errors as review(); not_found also when there is no undo to take back.
Result<UndoOutcome> undo(const LedgerPlace& place, const UndoOptions& options);

}  // namespace anchorhold::mounts
