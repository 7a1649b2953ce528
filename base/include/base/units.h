// Sizes and durations as people write them: "512M", "2GiB", "90s", "5m", "1h30m".
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold {

struct ByteSize {
  std::uint64_t bytes = 0;
  static constexpr ByteSize kib(std::uint64_t n) { return {n << 10}; }
  static constexpr ByteSize mib(std::uint64_t n) { return {n << 20}; }
  static constexpr ByteSize gib(std::uint64_t n) { return {n << 30}; }
  auto operator<=>(const ByteSize&) const = default;
};

// K, M, G, T, with or without "iB" or "B"; all are powers of 1024. A bare number is bytes.
Result<ByteSize> parse_size(std::string_view text);
// ms, s, m, h, d, in any sequence; a bare number is seconds. Negative and zero-length input is refused.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);
// "1.5 GiB", "512 B".
std::string to_string(ByteSize size);
// "1m 30s", "250ms".
std::string to_string(std::chrono::milliseconds duration);

}  // namespace anchorhold
