// The bytes of a front end's connection to a device that is not there yet, with descriptors beside them:
// first byte of each step chooses, then come a length and so many bytes. Sometimes a device comes that is
// none.
#include <algorithm>
#include <cstdint>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "vsock/device_holder.h"

using namespace anchorhold;
using namespace anchorhold::vsock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto loop = EventLoop::create();
  auto pair = socket_pair(SOCK_STREAM);
  if (!loop || !pair) return 0;
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto holder = DeviceHolder::create(**loop, std::move(pair->second), 2,
                                     [&](Status cause) { (*loop)->stop(std::move(cause)); });
  if (!holder) return 0;
  auto& front_end = pair->first;
  (void)set_nonblocking(front_end.get());
  std::span<const std::uint8_t> input(data, size);
  (*loop)->at_turn_end([&] {
    char reply[1024];
    while (recv(front_end.get(), reply, sizeof reply, MSG_DONTWAIT) > 0) {
    }
    if (input.size() < 2) {
      front_end.reset();
      return false;
    }
    unsigned kind = input[0] % 16;
    std::size_t length = std::min<std::size_t>(input[1], input.size() - 2);
    auto bytes = std::as_bytes(input.subspan(2, length));
    input = input.subspan(2 + length);
    if (kind == 15) {
      // It answers with the input and hangs up.
      auto device = socket_pair(SOCK_STREAM);
      if (device) {
        if (length > 0) (void)send_with_descriptors(device->first.get(), bytes, {});
        (void)shutdown(device->first.get(), SHUT_WR);
        (void)(*holder)->attach(std::move(device->second));
      }
    } else if (length > 0) {
      std::vector<int> descriptors(kind % 4, event.get());
      (void)send_with_descriptors(front_end.get(), bytes, descriptors);
    }
    return true;
  });
  (*loop)->post([] {});
  (void)(*loop)->run();
  return 0;
}
