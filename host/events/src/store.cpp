#include "store.h"

#include <array>

namespace anchorhold::events {
namespace {

struct SchemaEntry {
  const char* name;
  const char* sql;
};

constexpr std::array<SchemaEntry, 6> schema{{
    {"event",
     "CREATE TABLE event (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, wall_ns INTEGER NOT NULL, "
     "monotonic_ns INTEGER NOT NULL, boot TEXT NOT NULL, name TEXT NOT NULL, severity INTEGER NOT NULL, "
     "attributes TEXT NOT NULL, previous BLOB NOT NULL, hash BLOB NOT NULL, "
     "session_id TEXT AS (json_extract(attributes, '$.\"session.id\"')) VIRTUAL, "
     "task_id TEXT AS (json_extract(attributes, '$.\"task.id\"')) VIRTUAL)"},
    {"event_by_session", "CREATE INDEX event_by_session ON event (session_id) WHERE session_id IS NOT NULL"},
    {"event_by_task", "CREATE INDEX event_by_task ON event (task_id) WHERE task_id IS NOT NULL"},
    {"event_no_update",
     "CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'the event log is "
     "append-only'); "
     "END"},
    {"event_no_delete",
     "CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'the event log is "
     "append-only'); "
     "END"},
    // Also stops INSERT OR REPLACE, for which SQLite does not run delete triggers.
    {"event_only_next",
     "CREATE TRIGGER event_only_next BEFORE INSERT ON event "
     "WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM event) "
     "BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END"},
}};

}  // namespace

std::filesystem::path log_file(const std::filesystem::path& folder) {
  return folder / "events.db";
}
std::filesystem::path anchor_file(const std::filesystem::path& folder) {
  return folder / "events.anchor";
}

const char* schema_sql(std::string_view name) {
  for (const auto& entry : schema)
    if (entry.name == name) return entry.sql;
  return "";
}

Status create_schema(database::Database& database) {
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database));
  auto version = ANCHORHOLD_TRY(database.query_integer("PRAGMA user_version"));
  if (version.value_or(0) > 1)
    return fail(ErrorCode::failed_precondition, "the event log was written by a newer Anchorhold",
                "use that version, or another state folder (XDG_STATE_HOME)");
  if (version.value_or(0) == 1) return {};
  for (const auto& entry : schema) ANCHORHOLD_CHECK(database.run(entry.sql));
  ANCHORHOLD_CHECK(database.run("PRAGMA user_version = 1"));
  return transaction.commit();
}

Result<std::optional<std::string>> find_schema_change(database::Database& database) {
  for (const auto& entry : schema) {
    auto statement = ANCHORHOLD_TRY(database.prepare("SELECT sql FROM sqlite_master WHERE name = ?"));
    statement.bind(1, std::string_view(entry.name));
    bool found = ANCHORHOLD_TRY(statement.step());
    if (!found) return std::optional(std::string("the log's ") + entry.name + " was removed");
    if (statement.text(0) != entry.sql)
      return std::optional(std::string("the log's ") + entry.name + " was changed");
  }
  return std::optional<std::string>();
}

StoredRecord read_record(const database::Statement& row) {
  StoredRecord record;
  record.sequence = row.integer(0);
  record.id = row.text(1);
  record.wall_ns = row.integer(2);
  record.monotonic_ns = row.integer(3);
  record.boot = row.text(4);
  record.name = row.text(5);
  record.severity = row.integer(6);
  record.attributes = row.text(7);
  record.previous = row.text(8);
  record.hash = row.text(9);
  return record;
}

Result<std::optional<StoredRecord>> read_last(database::Database& database) {
  auto statement = ANCHORHOLD_TRY(database.prepare(std::string("SELECT ") + record_columns +
                                                   " FROM event ORDER BY sequence DESC LIMIT 1"));
  bool found = ANCHORHOLD_TRY(statement.step());
  if (!found) return std::optional<StoredRecord>();
  return std::optional(read_record(statement));
}

}  // namespace anchorhold::events
