// The bytes of the front end's connection, with a descriptor of shared memory or an event beside them where
// the input says so: first byte of each step chooses, then come a length and so many bytes.
#include <algorithm>
#include <cstdint>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "vsock/vhost_user.h"

namespace {

using namespace anchorhold;
using namespace anchorhold::vsock;

class Device final : public VhostUserDevice {
 public:
  explicit Device(EventLoop& loop) : loop_(loop) {}
  std::size_t queue_count() const override { return 2; }
  std::span<const std::byte> config() const override { return config_; }
  void started(std::size_t queue) override { kicked(queue); }
  void stopping(std::size_t) override {}
  void kicked(std::size_t queue) override {
    DescriptorChain chain;
    for (int i = 0; i < 64 && back_end; ++i) {
      auto popped = back_end->queue(queue).pop(chain);
      if (!popped) return back_end->fault(std::move(popped).error());
      if (!*popped) break;
      std::byte bytes[64];
      copy_from(chain.readable, 0, bytes);
      back_end->queue(queue).push(chain, static_cast<std::uint32_t>(copy_to(chain.writable, 0, bytes)));
    }
    back_end->queue(queue).notify();
    back_end->queue(queue).rearm_kicks();
  }
  void ended(Status cause) override { loop_.stop(std::move(cause)); }

  VhostUserBackEnd* back_end = nullptr;

 private:
  EventLoop& loop_;
  std::vector<std::byte> config_ = std::vector<std::byte>(8);
};

UniqueFd shared_memory() {
  UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC));
  (void)!ftruncate(fd.get(), 1 << 16);
  return fd;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto loop = EventLoop::create();
  auto pair = socket_pair(SOCK_STREAM);
  if (!loop || !pair) return 0;
  UniqueFd memory = shared_memory();
  // The rings and what they point at come from the input as well.
  (void)!pwrite(memory.get(), data, std::min<std::size_t>(size, 4096), 0);
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Device device(**loop);
  VhostUserLimits limits;
  limits.max_memory_bytes = 1 << 20;
  auto back_end = VhostUserBackEnd::create(**loop, std::move(pair->second), device, limits);
  if (!back_end) return 0;
  device.back_end = back_end->get();
  auto& front_end = pair->first;
  (void)set_nonblocking(front_end.get());
  std::span<const std::uint8_t> input(data, size);
  (*loop)->at_turn_end([&] {
    // The next step once the device has taken what is there; replies are read and forgotten.
    char reply[1024];
    while (recv(front_end.get(), reply, sizeof reply, MSG_DONTWAIT) > 0) {
    }
    if (input.size() < 2) {
      front_end.reset();
      return false;
    }
    unsigned kind = input[0] % 16;
    std::size_t length = std::min<std::size_t>(input[1], input.size() - 2);
    std::vector<int> descriptors(kind % 4, kind & 8 ? event.get() : memory.get());
    auto bytes = std::as_bytes(input.subspan(2, length));
    input = input.subspan(2 + length);
    if (length > 0) (void)send_with_descriptors(front_end.get(), bytes, descriptors);
    if (kind & 4) {
      const std::uint64_t one = 1;
      (void)!write(event.get(), &one, sizeof one);
    }
    return true;
  });
  (*loop)->post([] {});
  (void)(*loop)->run();
  return 0;
}
