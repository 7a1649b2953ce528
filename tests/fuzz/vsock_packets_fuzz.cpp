// What a hostile guest does with its rings and packets, against the real device in this process: the front
// end negotiates, then each step of the input makes one chain out of its own bytes. A stream from the start,
// a listening port, and a host that reads a little give the packets something to hit.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "front_end.h"
#include "vsock/stream_device.h"

namespace {

using namespace anchorhold;
using namespace anchorhold::vsock;
using vsock::testing::FrontEnd;
using vsock::testing::Packet;
using vsock::testing::RingDescriptor;

// Host to device: "listen", as the control protocol has it. Its layout is private to the device, so the
// message is built by hand; a change of it shows as a target that refuses every dial.
void send_control(int socket, std::uint32_t type, std::uint32_t port, std::uint32_t value) {
  std::uint32_t words[64] = {0x31564841, type, port, ~0u, 0, 0, value};
  (void)!send(socket, words, sizeof words, MSG_NOSIGNAL);
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}
  bool empty() const { return bytes_.empty(); }
  std::uint32_t take(std::size_t count) {
    std::uint32_t value = 0;
    for (; count > 0 && !bytes_.empty(); --count, bytes_ = bytes_.subspan(1)) value = value << 8 | bytes_[0];
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

void step(Input& input, FrontEnd& front_end, std::uint16_t& head) {
  std::uint32_t kind = input.take(1);
  unsigned ring = kind & 1;
  head = static_cast<std::uint16_t>((head + 4) % FrontEnd::entries);
  std::uint64_t at = FrontEnd::guest_base + 0x100000 + head * 1024u;
  Packet packet;
  packet.operation = static_cast<std::uint16_t>(kind & 2 ? input.take(1) : input.take(1) % 8);
  packet.source_port = 50000 + input.take(1) % 4;
  packet.destination_port = 1024 + input.take(1) % 3;
  packet.length = kind & 4 ? input.take(4) : input.take(1);
  packet.flags = input.take(1);
  if (kind & 8) packet.forwarded = input.take(4);
  if (kind & 16) packet.source_cid = input.take(2);
  front_end.at<Packet>(0x100000 + head * 1024u) = packet;
  std::uint16_t write = ring == 0 ? 2 : 0;
  if (kind & 32) {  // raw descriptors of the input
    unsigned count = 1 + input.take(1) % 4;
    for (unsigned i = 0; i < count; ++i)
      front_end.descriptor(ring, (head + i) % FrontEnd::entries) = {
          FrontEnd::guest_base + input.take(4), input.take(4), static_cast<std::uint16_t>(input.take(1)),
          static_cast<std::uint16_t>(input.take(2))};
  } else {
    std::uint32_t length =
        ring == 0 ? 512u : static_cast<std::uint32_t>(sizeof packet + std::min(packet.length, 512u));
    front_end.descriptor(ring, head) = {at, length, write, 0};
  }
  if (kind & 64)
    front_end.available(ring, 1) = static_cast<std::uint16_t>(front_end.available(ring, 1) + input.take(1));
  front_end.offer(ring, kind & 128 ? static_cast<std::uint16_t>(input.take(2)) : head);
  front_end.kick(ring);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto loop = EventLoop::create();
  auto control = socket_pair(SOCK_SEQPACKET);
  auto connection = socket_pair(SOCK_STREAM);
  if (!loop || !control || !connection) return 0;
  StreamDeviceLimits limits;
  limits.byte_streams = 8;
  limits.call_streams = limits.dialed_streams = 4;
  limits.large_streams = 2;
  limits.stream_buffer = 1024;
  auto device = StreamDevice::create(**loop, std::move(control->second), 3, limits);
  if (!device || !(*device)->attach(std::move(connection->second))) return 0;
  // Negotiation is answered by the loop, so it runs on another thread than the front end's.
  FrontEnd front_end(std::move(connection->first));
  send_control(control->first.get(), 1, 1024, 0);
  send_control(control->first.get(), 1, 1025, 100);  // carries gRPC
  Status cause;
  std::thread serving([&] { cause = (*loop)->run(); });
  try {
    front_end.negotiate(size % 2 == 0);
    Input input(data, size);
    std::uint16_t head = 0;
    while (!input.empty()) step(input, front_end, head);
    // The host's side: takes the streams it is given, reads a little, writes a little, drops half of them.
    alignas(8) std::byte message[256];
    for (int i = 0; i < 8; ++i) {
      pollfd entry{control->first.get(), POLLIN, 0};
      if (poll(&entry, 1, 1) != 1) break;
      auto received = receive_with_descriptors(control->first.get(), message);
      if (!received || received->size == 0) break;
      for (auto& fd : received->descriptors) {
        char bytes[300];
        (void)!recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
        (void)!send(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
      }
    }
  } catch (const std::exception&) {  // the device ended while it was spoken to
  }
  control->first.reset();  // ends the device if nothing did before
  serving.join();
  return 0;
}
