// The back-end side of vhost-user (QEMU docs/interop/vhost-user.rst): a front end, in practice QEMU, connects
// to a unix socket and hands over the guest's memory and rings. Messages are checked byte by byte; anything
// the protocol does not allow ends the connection with a cause that names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "vsock/event_loop.h"
#include "vsock/guest_memory.h"
#include "vsock/virtqueue.h"

namespace anchorhold::vsock {
namespace vhost_user {
class MessageReader;
}

// What a device is. All functions are called on the loop's thread.
class VhostUserDevice {
 public:
  virtual ~VhostUserDevice() = default;

  // Feature bits of the device type only; those of the transport (VERSION_1, INDIRECT_DESC, EVENT_IDX) are
  // added.
  virtual std::uint64_t features() const { return 0; }
  virtual std::size_t queue_count() const = 0;
  // The device configuration space; empty: there is none (GET_CONFIG is then not offered).
  virtual std::span<const std::byte> config() const { return {}; }

  // The ring runs (again): chains may be waiting in it. Called before any kicked() of it.
  virtual void started(std::size_t queue) = 0;
  // The front end wants the ring back. Requests in other threads' hands must end soon: the ring is given
  // back, and the front end waits, until nothing is in flight. Chains the device holds on this thread must be
  // pushed here.
  virtual void stopping(std::size_t queue) = 0;
  // The guest put something into the ring.
  virtual void kicked(std::size_t queue) = 0;
  // The connection is over, for good: an error is its cause, success means the front end closed it between
  // messages.
  virtual void ended(Status cause) = 0;
};

struct VhostUserLimits {
  std::uint64_t max_memory_bytes = 512ull << 30;
};

class VhostUserBackEnd {
 public:
  // Serves the connection from the loop; loop and device outlive it. The connection is made non-blocking.
  static Result<std::unique_ptr<VhostUserBackEnd>> create(EventLoop& loop, UniqueFd connection,
                                                          VhostUserDevice& device,
                                                          VhostUserLimits limits = {});
  ~VhostUserBackEnd();

  VirtQueue& queue(std::size_t index) { return rings_[index]->queue; }
  // Ends the connection with this cause, as a malformed message does: for faults that the device finds in a
  // ring.
  void fault(Error cause);

 private:
  using Message = vhost_user::MessageReader;
  struct Ring {
    VirtQueue queue;
    UniqueFd kick;
    EventLoop::Watch watch;  // of kick
    bool started = false;    // the device was told
  };

  VhostUserBackEnd(EventLoop& loop, UniqueFd connection, VhostUserDevice& device, VhostUserLimits limits);
  void connection_ready();
  Status dispatch(Message& message);
  Status dispatch_ring(Message& message);
  Status set_features(std::uint64_t value);
  Status set_protocol_features(std::uint64_t value);
  Status set_memory_table(Message& message);
  Status set_ring_descriptor(Message& message);
  Status set_kick(std::size_t index, UniqueFd fd);
  Status get_config(const Message& message);
  Status reply(const Message& message, std::span<const std::byte> payload);
  Status reply_number(const Message& message, std::uint64_t value);
  // Tells the device when a ring became usable or stopped being so.
  void update(std::size_t index);
  Result<std::size_t> ring_index(std::uint64_t index) const;
  std::uint64_t offered_features() const;
  std::uint64_t offered_protocol_features() const;
  void end(Status cause);

  EventLoop& loop_;
  UniqueFd connection_;
  VhostUserDevice& device_;
  VhostUserLimits limits_;
  std::uint64_t features_ = 0;
  std::uint64_t protocol_features_ = 0;
  bool ended_ = false;
  std::shared_ptr<const GuestMemory> memory_;
  std::vector<std::unique_ptr<Ring>> rings_;
  EventLoop::Watch connection_watch_;
  std::unique_ptr<Message> incoming_;
};

// A listening unix socket at the path, mode 0600; what was at the path is replaced. Made before sealing.
Result<UniqueFd> listen_for_front_end(const std::string& path);

}  // namespace anchorhold::vsock
