// What of a changed file could be run on the person's own computer later, by its name and its content. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mounts/review.h"

namespace anchorhold::mounts {

struct RiskFacts {
  std::string_view path;        // as it is now
  bool executable_now = false;  // has an execute bit it had not before (also: is new and has one)
  std::string_view beginning;   // the file's first bytes
  std::string_view end;         // and its last ones
};

// Why a person should look at it before anything else; nothing when it is an ordinary file.
std::optional<std::string> risk_of_running(const RiskFacts& facts);

inline constexpr std::size_t risk_beginning_bytes = 16 * 1024;
inline constexpr std::size_t risk_end_bytes = 64 * 1024;

}  // namespace anchorhold::mounts
