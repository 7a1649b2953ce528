// Ends of child processes. PID 1 gets every orphan of the guest as a child: each is reaped, and those that
// are the first process of a command are reported to it. This is the only place that waits, so no status is
// ever taken by another.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/fd.h"
#include "vsock/event_loop.h"

namespace anchorhold::guest {

struct ChildEnd {
  int status = 0;  // as of wait(2)
  rusage usage{};
};

// Belongs to the loop's thread. SIGCHLD must be blocked in every thread of the process.
class Reaper {
 public:
  using Ended = std::function<void(const ChildEnd&)>;
  static Result<std::unique_ptr<Reaper>> create(vsock::EventLoop& loop);

  // A child is about to be born on another thread. Each call is followed by one claim().
  void expect() { ++expected_; }
  // Its number, or -1 when none was born; an empty callback when nobody cares. May call back at once.
  void claim(pid_t pid, Ended ended);

 private:
  Reaper() = default;
  void reap();

  UniqueFd signals_;
  vsock::EventLoop::Watch watch_;
  unsigned expected_ = 0;
  std::map<pid_t, Ended> claimed_;
  std::map<pid_t, ChildEnd> unclaimed_;  // ended while a child was expected: may be that child
};

}  // namespace anchorhold::guest
