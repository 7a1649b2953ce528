// The ledger's SQL, one function for each statement. Used under the ledger's lock.
#pragma once

#include <memory>
#include <string>

#include "database/database.h"
#include "ledger.h"
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
  static Result<std::unique_ptr<Statements>> prepare(database::Database& database, std::int64_t epoch);

  Result<std::int64_t> insert_object(const Located& object, std::string_view path, bool created,
                                     std::string_view target, std::string_view xattrs);
  Status delete_object(std::int64_t id);
  Status set_kept(std::int64_t id, HowKept how, std::string_view name, std::uint64_t bytes);
  Status set_removed(std::int64_t id);
  Status set_stands(std::int64_t id);
  Status set_path(std::int64_t id, std::string_view path);
  Result<KeptRow> kept_of(std::int64_t id);
  Result<std::string> path_of(std::int64_t id);
  Status add_lost(std::int64_t object, std::string_view path);
  Result<std::int64_t> add_gained(std::int64_t object, const Identity& folder, std::string_view name,
                                  bool linked);
  Status delete_gained(std::int64_t number);
  Status set_remains(const Remains& remains);

  database::Statement insert_object_, delete_object_, set_kept_, set_removed_, set_stands_, set_path_,
      kept_of_, path_of_, add_lost_, add_gained_, delete_gained_, set_remains_;
  std::int64_t epoch = 0;
  std::int64_t next_object = 1;
  std::int64_t next_gained = 1;
};

}  // namespace anchorhold::mounts
