// Short forms for the task's database.
#pragma once

#include <string>
#include <string_view>

#include "database/database.h"

namespace anchorhold::agent {

inline void bind_value(database::Statement& statement, int at, std::string_view text) {
  statement.bind(at, text);
}
inline void bind_value(database::Statement& statement, int at, std::int64_t number) {
  statement.bind(at, number);
}
inline void bind_value(database::Statement& statement, int at, std::uint64_t number) {
  statement.bind(at, static_cast<std::int64_t>(number));
}

// One statement without rows; the values fill its parameters in order.
template <typename... Values>
Status execute(database::Database& database, std::string_view sql, const Values&... values) {
  auto statement = ANCHORHOLD_TRY(database.prepare(sql));
  int at = 0;
  (bind_value(statement, ++at, values), ...);
  return statement.run();
}

inline std::string string_at(const database::Statement& row, int column) {
  return std::string(row.text(column));
}
inline std::uint64_t unsigned_at(const database::Statement& row, int column) {
  return static_cast<std::uint64_t>(row.integer(column));
}

}  // namespace anchorhold::agent
