// The ledger's SQL, one function for each statement. Used under the ledger's lock. What concerns the
// session's own objects alone gathers in the file of ledger_recent.h and becomes rows in numbers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "database/database.h"
#include "ledger.h"
#include "ledger_recent.h"
#include "object.h"

namespace anchorhold::mounts {

// The client cannot do anything about a ledger that fails: EIO or ENOSPC, and the words go to the log.
int journal_failed(const Error& error);

struct KeptRow {
  HowKept how = HowKept::not_kept;
  std::string name;
  std::uint64_t bytes = 0;
};

struct Ledger::Statements {
  // What an earlier process left in `recent` becomes rows.
  static Result<std::unique_ptr<Statements>> prepare(database::Database& database,
                                                     const std::filesystem::path& folder, std::int64_t epoch);

  // What an earlier process had announced.
  const RecentEntry* announced_before() const { return before_.announced(); }
  // Nothing of an earlier process is left to do.
  Status begin_recent();

  // Gathered.
  int announce(const RecentEntry& announcement);
  void forget_announced();
  Result<std::int64_t> add_created(const Located& object);
  Status delete_created(std::int64_t id);
  Status set_created_path(std::int64_t id, std::string_view path);
  Status set_gone(std::int64_t id);  // of something pre-existing
  // What was gathered becomes rows.
  Status settle();
  // The same, if the row of this id is among it.
  Status settle_row_of(std::int64_t id);

  Result<std::int64_t> insert_object(const Located& object, std::string_view path, std::string_view target,
                                     std::string_view xattrs);
  Status insert_created(const RecentEntry& created);
  Status set_kept(std::int64_t id, HowKept how, std::string_view name, std::uint64_t bytes);
  Status set_removed(std::int64_t id);
  Status set_stands(std::int64_t id);
  Result<KeptRow> kept_of(std::int64_t id);
  Result<std::string> path_of(std::int64_t id);
  Status add_lost(std::int64_t object, std::string_view path);
  Result<std::int64_t> add_gained(std::int64_t object, const Identity& folder, std::string_view name,
                                  bool linked);
  Status delete_gained(std::int64_t number);
  Status set_remains(const Remains& remains);

  database::Statement insert_object_, delete_object_, set_kept_, set_removed_, set_stands_, set_path_,
      kept_of_, path_of_, add_lost_, add_gained_, delete_gained_, set_remains_, set_settled_;
  std::int64_t epoch = 0;
  std::int64_t next_object = 1;
  std::int64_t next_gained = 1;

  database::Database* database_ = nullptr;
  std::optional<Recent> recent_{};
  RecentBatch before_{};  // what was in the file
  // Since the last settling. An entry of something that was removed again is empty.
  std::vector<std::optional<RecentEntry>> gathered_{};
  std::unordered_map<std::int64_t, std::size_t> gathered_created_{};  // by id
  std::optional<RecentEntry> announced_{};
  bool between_batches_ = true;  // the file could not begin a new one

 private:
  int append(const RecentEntry& entry);
  Status gather(RecentEntry entry);
  Status apply(const RecentEntry& entry);
  template <typename Entries>
  Status apply_all(const Entries& entries, std::uint64_t batch);
};

}  // namespace anchorhold::mounts
