// The log's file: its tables, and reading records from it. Private to this part.
#pragma once

#include <filesystem>
#include <optional>

#include "chain.h"
#include "database/database.h"

namespace anchorhold::events {

std::filesystem::path log_file(const std::filesystem::path& folder);
std::filesystem::path anchor_file(const std::filesystem::path& folder);

// Makes the tables and the triggers that refuse changes.
Status create_schema(database::Database& database);
// The statement that makes this table, index or trigger.
const char* schema_sql(std::string_view name);
// Says what is missing or different; nothing when the schema is as create_schema made it.
Result<std::optional<std::string>> find_schema_change(database::Database& database);

// The columns of `record_columns`, in this order.
inline constexpr const char* record_columns =
    "sequence, id, wall_ns, monotonic_ns, boot, name, severity, attributes, previous, hash";
StoredRecord read_record(const database::Statement& row);
Result<std::optional<StoredRecord>> read_last(database::Database& database);

}  // namespace anchorhold::events
