#include "libvirt/event_loop.h"

#include <cstdlib>
#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <thread>

namespace anchorhold::hypervisor {
namespace {

void ignore_error(void*, virErrorPtr) {}

bool start() {
  // Its log goes to standard error otherwise, warnings about every machine included. There is no call for
  // this, and it is read once; a person who sets the variable gets the log.
  setenv("LIBVIRT_LOG_OUTPUTS", "4:file:/dev/null", 0);
  // Errors are returned to the caller; by default libvirt prints them as well.
  virSetErrorFunc(nullptr, ignore_error);
  if (virInitialize() != 0 || virEventRegisterDefaultImpl() != 0) return false;
  std::thread([] {
    while (virEventRunDefaultImpl() == 0) {
    }
  }).detach();
  return true;
}

}  // namespace

Status start_event_loop() {
  static const bool started = start();
  if (started) return {};
  return fail(ErrorCode::internal, "libvirt's event loop could not be set up");
}

int watch_readable(int descriptor, std::function<void()> on_readable) {
  auto* call = new std::function<void()>(std::move(on_readable));
  auto on_event = [](int watch, int, int, void* opaque) {
    virEventUpdateHandle(watch, 0);
    (*static_cast<std::function<void()>*>(opaque))();
  };
  auto release = [](void* opaque) { delete static_cast<std::function<void()>*>(opaque); };
  int watch = virEventAddHandle(descriptor, VIR_EVENT_HANDLE_READABLE, on_event, call, release);
  if (watch < 0) delete call;
  return watch;
}

void unwatch(int watch) {
  virEventRemoveHandle(watch);
}

}  // namespace anchorhold::hypervisor
