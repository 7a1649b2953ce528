// Timers of the agent's one thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/fd.h"
#include "vsock/event_loop.h"

namespace anchorhold::guest {

class Timers {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static Result<std::unique_ptr<Timers>> create(vsock::EventLoop& loop);

  // Identifies a timer; 0 is none.
  using Id = std::uint64_t;
  Id after(std::chrono::nanoseconds delay, std::function<void()> task);
  // Harmless when it has run. The id becomes 0.
  void cancel(Id& id);

 private:
  Timers() = default;
  void arm();
  void run_due();

  UniqueFd timer_;
  vsock::EventLoop::Watch watch_;
  Id next_ = 1;
  std::map<std::pair<Time, Id>, std::function<void()>> tasks_;
  std::map<Id, Time> times_;
};

}  // namespace anchorhold::guest
