// Time as an interface, so that time limits are tested by stepping a clock and never by waiting.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

namespace anchorhold {

using WallTime = std::chrono::system_clock::time_point;
using MonotonicTime = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime wall() const = 0;
  virtual MonotonicTime monotonic() const = 0;
};

class SystemClock : public Clock {
 public:
  WallTime wall() const override { return std::chrono::system_clock::now(); }
  MonotonicTime monotonic() const override { return std::chrono::steady_clock::now(); }
};

// Moves only when told. Safe from any thread.
class FakeClock : public Clock {
 public:
  explicit FakeClock(WallTime start = WallTime(std::chrono::hours(24 * 365 * 50))) : wall_(start) {}
  WallTime wall() const override;
  MonotonicTime monotonic() const override;
  void advance(std::chrono::nanoseconds by);

 private:
  mutable std::mutex mutex_;
  WallTime wall_;
  MonotonicTime monotonic_{};
};

// RFC 3339 in UTC with milliseconds: "2026-01-02T03:04:05.678Z".
std::string to_rfc3339(WallTime time);

}  // namespace anchorhold
