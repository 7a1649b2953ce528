// A ledger read whole: what an epoch recorded of each object, and what was noted of it at the end. Also the
// few rows that an undo changes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "database/database.h"
#include "ledger.h"
#include "ledger_recent.h"
#include "object.h"

namespace anchorhold::mounts {

struct GainedPlace {
  Identity folder;
  std::string name;
};

struct ObjectRow {
  std::int64_t id = 0;
  Identity identity;
  bool created = false;
  std::string path;
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t links = 1;
  Timestamp access_time{}, modify_time{};
  std::string target, xattrs;
  HowKept kept = HowKept::not_kept;
  std::string kept_name;
  std::uint64_t kept_bytes = 0;
  bool removed = false;
  std::int64_t owner = -1, owner_group = -1;
  std::vector<std::string> lost;
  std::vector<GainedPlace> gained;

  bool is_folder() const { return S_ISDIR(mode); }
  bool is_file() const { return S_ISREG(mode); }
  bool is_symlink() const { return S_ISLNK(mode); }
  bool is_meeting_place() const { return S_ISFIFO(mode) || S_ISSOCK(mode); }
  bool content_is_kept() const {
    return kept == HowKept::cloned || kept == HowKept::moved || kept == HowKept::copied;
  }
};

struct EpochRow {
  std::int64_t number = 0;
  std::int64_t inverts = -1;
  std::int64_t begun_ns = 0, ended_ns = 0;  // ended_ns: see ledger_schema.h
  bool taken_back = false;
  std::string paths;  // as they were asked for, each ended by NUL
};

// Belongs to one thread.
class Book {
 public:
  // not_found when there is no ledger.
  static Result<Book> open(const std::filesystem::path& folder, database::Database::Mode mode);

  Result<std::vector<EpochRow>> epochs();
  Result<std::vector<ObjectRow>> objects(std::int64_t epoch);
  // Of every object that was noted.
  Result<std::unordered_map<Identity, Remains, IdentityHash>> remains();
  // When the ledger was last written to before it was opened here; what is younger was not noted by it.
  std::int64_t last_written_ns() const { return last_written_ns_; }

  // The object lives on as another one: everything that was known of the old one is now known of it.
  Status alias(const Identity& before, const Identity& now);
  Status set_not_removed(const Identity& identity);
  Status set_copied(std::int64_t object, std::string_view kept_name);
  Status begin_epoch(std::int64_t number, std::int64_t inverts, std::string_view paths);
  Status set_taken_back(std::int64_t number);
  // An epoch that changed nothing.
  Status forget_epoch_without_objects(std::int64_t number);

 private:
  Book(database::Database database, RecentBatch recent, std::int64_t last_written_ns)
      : database_(std::move(database)), recent_(std::move(recent)), last_written_ns_(last_written_ns) {}
  Status add_recent(std::int64_t epoch, std::vector<ObjectRow>& objects);

  database::Database database_;
  RecentBatch recent_;
  std::int64_t last_written_ns_;
};

}  // namespace anchorhold::mounts
