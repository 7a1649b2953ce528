// libvirt's event loop on a thread of its own: without it no event arrives and no embedded driver works.
#pragma once

#include <memory>
#include <thread>

#include "base/error.h"

namespace anchorhold::hypervisor {

// One per process, running as long as somebody holds it.
class EventLoop {
 public:
  static Result<std::shared_ptr<EventLoop>> shared();
  ~EventLoop();

 private:
  EventLoop() = default;
  Status start();
  int wake_timer_ = -1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace anchorhold::hypervisor
