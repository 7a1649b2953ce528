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
  std::size_t max_streams = 1024;
  // Per stream: what the guest may send ahead of a host that does not read (the "buf_alloc" of the protocol).
  // Memory is taken only while the host's socket is full.
  std::uint32_t stream_buffer = 256u << 10;
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
