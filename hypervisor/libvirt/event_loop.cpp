#include "libvirt/event_loop.h"

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>

#include <mutex>

namespace anchorhold::hypervisor {
namespace {

void ignore_error(void*, virErrorPtr) {}

// Once per process, before any connection: libvirt keeps the loop's implementation for good.
bool register_loop() {
  static const bool registered = [] {
    // Errors are returned to the caller; by default libvirt prints them as well.
    virSetErrorFunc(nullptr, ignore_error);
    return virInitialize() == 0 && virEventRegisterDefaultImpl() == 0;
  }();
  return registered;
}

}  // namespace

Result<std::shared_ptr<EventLoop>> EventLoop::shared() {
  static std::mutex mutex;
  static std::weak_ptr<EventLoop> current;
  std::lock_guard lock(mutex);
  if (auto loop = current.lock()) return loop;
  if (!register_loop()) return fail(ErrorCode::internal, "libvirt's event loop could not be set up");
  std::shared_ptr<EventLoop> loop(new EventLoop);
  ANCHORHOLD_CHECK(loop->start());
  current = loop;
  return loop;
}

Status EventLoop::start() {
  // Idle until the end, when it runs at once to wake the loop; `stopping_` is touched on the loop's thread only.
  auto on_timer = [](int, void* self) { static_cast<EventLoop*>(self)->stopping_ = true; };
  wake_timer_ = virEventAddTimeout(-1, on_timer, this, nullptr);
  if (wake_timer_ < 0) return fail(ErrorCode::internal, "libvirt's event loop takes no timer");
  thread_ = std::thread([this] {
    while (!stopping_)
      if (virEventRunDefaultImpl() < 0) return;
  });
  return {};
}

EventLoop::~EventLoop() {
  if (!thread_.joinable()) return;
  virEventUpdateTimeout(wake_timer_, 0);
  thread_.join();
  virEventRemoveTimeout(wake_timer_);
}

}  // namespace anchorhold::hypervisor
