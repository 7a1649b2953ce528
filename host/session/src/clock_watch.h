// Notices when the host's clock was set, or the host woke from sleep, and says so: the guest's clock must
// follow.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::session {

// Has a thread of its own, on which `changed` is called. The destructor ends it.
class ClockWatch {
 public:
  static Result<std::unique_ptr<ClockWatch>> start(std::function<void()> changed);
  ~ClockWatch();

 private:
  ClockWatch(UniqueFd timer, UniqueFd stop, std::function<void()> changed);
  void watch();

  UniqueFd timer_;
  UniqueFd stop_;
  std::function<void()> changed_;
  std::thread thread_;
};

}  // namespace anchorhold::session
