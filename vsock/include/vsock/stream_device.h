// The virtio-vsock device (virtio 1.2, section 5.10), stream sockets only, as it runs in the sealed process:
// each stream of the guest is bridged to one end of a unix socket pair whose other end the host gets over the
// control socket. Bytes go from guest memory to the socket and back by one system call, without a copy of
// ours in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "vsock/event_loop.h"

namespace anchorhold::vsock {

struct StreamDeviceLimits {
  // Streams at a time. Each kind has a bound of its own, so that a guest that opens all it can of one leaves
  // the others alone. Of bytes: more than the egress process takes, so that it is the one to say no.
  std::size_t byte_streams = 12'288;
  std::size_t call_streams = 64;     // to ports that carry gRPC
  std::size_t dialed_streams = 256;  // by the host
  // Per stream: what the guest may send ahead of a host that does not read (the "buf_alloc" of the protocol).
  // Memory is taken only while the host's socket is full. A stream of bytes begins with the small one and
  // gets the large one when it is used, as long as there are not too many of those.
  std::uint32_t small_buffer = 16u << 10;
  std::uint32_t stream_buffer = 256u << 10;
  std::size_t large_streams = 1024;

  std::size_t streams() const { return byte_streams + call_streams + dialed_streams; }
  // All buffers together, at most.
  std::uint64_t buffers() const {
    return std::uint64_t{byte_streams} * small_buffer +
           std::uint64_t{large_streams + call_streams + dialed_streams} * stream_buffer;
  }
};

// Belongs to the loop's thread. It ends by stopping the loop: with success when the front end closed the
// device, with the cause otherwise.
class StreamDevice {
 public:
  // `control` is the SOCK_SEQPACKET socket to the host.
  static Result<std::unique_ptr<StreamDevice>> create(EventLoop& loop, UniqueFd control,
                                                      std::uint32_t guest_cid,
                                                      StreamDeviceLimits limits = {});
  virtual ~StreamDevice() = default;
  // Serves the one front end there is.
  virtual Status attach(UniqueFd front_end) = 0;
  // Tells the host why the device ends; the last thing it says.
  virtual void say_end(const Status& cause) = 0;
};

}  // namespace anchorhold::vsock
