// The ledger's SQL, one function for each statement. Used under the ledger's lock.
#pragma once

#include <memory>
#include <string>

#include "database/database.h"
#include "ledger.h"
#include "object.h"

namespace anchorhold::mounts {

struct KeptRow {
  HowKept how = HowKept::not_kept;
  std::string name;
  std::uint64_t bytes = 0;
};

struct Ledger::Statements {
  static Result<std::unique_ptr<Statements>> prepare(database::Database& database);

  Result<std::int64_t> insert_object(const Located& object, bool created, std::string_view target,
                                     std::string_view xattrs);
  Status delete_object(std::int64_t id);
  Status set_kept(std::int64_t id, HowKept how, std::string_view name, std::uint64_t bytes);
  Status set_removed(std::int64_t id);
  Status set_stands(std::int64_t id);
  Status set_path(std::int64_t id, std::string_view path);
  Result<KeptRow> kept_of(std::int64_t id);
  Result<std::int64_t> insert_rename(std::int64_t object, std::string_view old_path,
                                     std::string_view new_path, bool exchange);
  Status delete_rename(std::int64_t number);

  database::Statement insert_object_, delete_object_, set_kept_, set_removed_, set_stands_, set_path_,
      kept_of_, insert_rename_, delete_rename_;
  std::int64_t next_object = 1;
  std::int64_t next_rename = 1;
};

}  // namespace anchorhold::mounts
