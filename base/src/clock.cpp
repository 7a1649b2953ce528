#include "base/clock.h"

#include <fmt/chrono.h>

namespace anchorhold {

WallTime FakeClock::wall() const {
  std::lock_guard lock(mutex_);
  return wall_;
}

MonotonicTime FakeClock::monotonic() const {
  std::lock_guard lock(mutex_);
  return monotonic_;
}

void FakeClock::advance(std::chrono::nanoseconds by) {
  std::lock_guard lock(mutex_);
  wall_ += std::chrono::duration_cast<WallTime::duration>(by);
  monotonic_ += by;
}

std::string to_rfc3339(WallTime time) {
  auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  auto seconds = std::chrono::floor<std::chrono::seconds>(milliseconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(seconds.count())),
                     (milliseconds - seconds).count());
}

}  // namespace anchorhold
