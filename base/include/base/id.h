// Identifiers as types, so that a session's id cannot be given where an execution's is meant.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>

namespace anchorhold {

template <typename Tag>
class Id {
 public:
  Id() = default;
  explicit Id(std::string value) : value_(std::move(value)) {}
  const std::string& value() const { return value_; }
  bool empty() const { return value_.empty(); }
  auto operator<=>(const Id&) const = default;

 private:
  std::string value_;
};

using SessionId = Id<struct SessionTag>;
using TaskId = Id<struct TaskTag>;
using ExecId = Id<struct ExecTag>;

// Lower-case hexadecimal, two digits a byte.
std::string to_hex(std::string_view bytes);
// Lower-case hexadecimal from the kernel's random source (getrandom(2)); bytes is half the length.
std::string random_hex(std::size_t bytes);
// Short enough to type, unlikely to clash among one person's sessions: 12 characters of [0-9a-z],
// time-ordered.
std::string new_short_id();

}  // namespace anchorhold
