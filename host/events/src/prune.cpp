#include "prune.h"

#include <fmt/format.h>

#include "base/units.h"
#include "chain.h"
#include "store.h"

namespace anchorhold::events {
namespace {

Result<std::int64_t> number(database::Database& database, std::string_view sql) {
  return ANCHORHOLD_TRY(database.query_integer(sql)).value_or(0);
}

// By age: everything before the first record that is young enough.
Result<std::int64_t> older_than(database::Database& database, WallTime limit) {
  auto statement = ANCHORHOLD_TRY(
      database.prepare("SELECT sequence FROM event WHERE wall_ns >= ? ORDER BY sequence LIMIT 1"));
  statement.bind(1, std::chrono::duration_cast<std::chrono::nanoseconds>(limit.time_since_epoch()).count());
  bool found = ANCHORHOLD_TRY(statement.step());
  return found ? statement.integer(0) - 1
               : ANCHORHOLD_TRY(number(database, "SELECT max(sequence) FROM event"));
}

}  // namespace

Result<std::optional<Excess>> find_excess(database::Database& database, const Retention& retention,
                                          WallTime now) {
  const auto first = ANCHORHOLD_TRY(number(database, "SELECT min(sequence) FROM event"));
  if (first == 0) return std::optional<Excess>();
  std::optional<Excess> excess;
  if (retention.age.count() > 0) {
    const auto due = ANCHORHOLD_TRY(older_than(database, now - retention.age - retention.age / 10));
    if (due >= first)
      excess = Excess{ANCHORHOLD_TRY(older_than(database, now - retention.age)),
                      fmt::format("older than {} days", retention.age.count() / 24)};
  }
  if (retention.bytes > 0) {
    const auto page = ANCHORHOLD_TRY(number(database, "PRAGMA page_size"));
    const auto pages = ANCHORHOLD_TRY(number(database, "PRAGMA page_count")) -
                       ANCHORHOLD_TRY(number(database, "PRAGMA freelist_count"));
    const auto used = static_cast<std::uint64_t>(page * pages);
    if (used > retention.bytes) {
      const auto last = ANCHORHOLD_TRY(number(database, "SELECT max(sequence) FROM event"));
      const double kept = static_cast<double>(retention.bytes) * 3 / 4 / static_cast<double>(used);
      const auto through = first + static_cast<std::int64_t>(static_cast<double>(last - first) * (1 - kept));
      if (!excess || through > excess->through)
        excess = Excess{through, fmt::format("more than {}", to_string(ByteSize{retention.bytes}))};
    }
  }
  return excess;
}

Status remove_through(database::Database& database, std::int64_t sequence) {
  ANCHORHOLD_CHECK(database.run("DROP TRIGGER event_no_delete"));
  auto statement = ANCHORHOLD_TRY(database.prepare("DELETE FROM event WHERE sequence <= ?"));
  statement.bind(1, sequence);
  ANCHORHOLD_CHECK(statement.run());
  return database.run(schema_sql("event_no_delete"));
}

Result<Head> read_pruned(database::Database& database) {
  auto statement = ANCHORHOLD_TRY(
      database.prepare("SELECT attributes FROM event WHERE name = ? ORDER BY sequence DESC LIMIT 1"));
  statement.bind(1, log_prune.text);
  bool found = ANCHORHOLD_TRY(statement.step());
  if (!found) return Head{};
  auto attributes = ANCHORHOLD_TRY(decode_attributes(statement.text(0)));
  auto through = attributes.find(prune_through), hash = attributes.find(prune_hash);
  const auto* sequence = through == attributes.end() ? nullptr : std::get_if<std::int64_t>(&through->second);
  const auto* text = hash == attributes.end() ? nullptr : std::get_if<std::string>(&hash->second);
  if (!sequence || !text || text->size() != 2 * hash_size) return Head{};
  return Head{*sequence, *text};
}

}  // namespace anchorhold::events
