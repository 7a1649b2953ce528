#pragma once

#include <cstdint>
#include <limits>

namespace anchorhold {

// A file's time as nanoseconds since 1970. File systems have times beyond what fits (the years 1677 to 2262);
// those are the nearest that does.
inline std::int64_t file_time_nanoseconds(std::int64_t seconds, std::int64_t nanoseconds) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(seconds, std::int64_t{1'000'000'000}, &result) ||
      __builtin_add_overflow(result, nanoseconds, &result))
    return seconds < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
  return result;
}

}  // namespace anchorhold
