// What retention removes, and how the chain goes on after it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "database/database.h"
#include "events/event_log.h"

namespace anchorhold::events {

// Attributes of log_prune.
inline constexpr std::string_view prune_through = "log.pruned_through";
inline constexpr std::string_view prune_hash = "log.pruned_hash";

struct Excess {
  std::int64_t through = 0;  // the last record that goes
  std::string cause;
};
// Nothing: all of it may stay.
Result<std::optional<Excess>> find_excess(database::Database& database, const Retention& retention,
                                          WallTime now);
// In a transaction. The trigger that refuses it is away meanwhile, and back when the transaction ends.
Status remove_through(database::Database& database, std::int64_t sequence);
// Where the chain begins: what the newest log_prune says; sequence 0 when there is none.
Result<Head> read_pruned(database::Database& database);

}  // namespace anchorhold::events
