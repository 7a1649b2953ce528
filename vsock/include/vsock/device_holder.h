// Keeps the place of a vhost-user device that is not there yet: it answers the front end's set-up as the
// device will, and keeps what was said. When the device comes, all of that is said to it, and from then on
// messages are passed on both ways. The guest's memory is never mapped and no ring is looked at: descriptors
// of both only pass through.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "vsock/event_loop.h"

namespace anchorhold::vsock {
namespace vhost_user {
class MessageReader;
}

// Belongs to the loop's thread.
class DeviceHolder {
 public:
  // The connection is over: ok when the front end or the device that came closed it, else what one of them
  // did wrong. May not destroy the holder.
  using Ended = std::function<void(Status cause)>;

  // The device will have at least this many queues, no configuration space and no features of its own.
  static Result<std::unique_ptr<DeviceHolder>> create(EventLoop& loop, UniqueFd connection,
                                                      std::size_t queues, Ended ended);
  ~DeviceHolder();

  // `device` is connected to a vhost-user back end. Blocks for as long as that takes to answer. After an
  // error the place is held as before. failed_precondition: a device is there, or is not what was promised.
  Status attach(UniqueFd device);
  bool attached() const { return static_cast<bool>(device_); }

 private:
  struct Kept {
    std::vector<std::byte> payload;
    std::vector<UniqueFd> descriptors;
  };
  using KeptMessages = std::map<std::uint32_t, Kept>;  // by request: the newest of each

  DeviceHolder(EventLoop& loop, UniqueFd connection, std::size_t queues, Ended ended);
  void connection_ready();
  void device_ready();
  Status hold(vhost_user::MessageReader& message);
  Status pass_on(vhost_user::MessageReader& message);
  Result<KeptMessages*> ring_of(const vhost_user::MessageReader& message);
  Status reply(const vhost_user::MessageReader& message, std::span<const std::byte> payload);
  Status reply_number(const vhost_user::MessageReader& message, std::uint64_t value);
  static Result<std::uint64_t> ask(int device, std::uint32_t request);
  static Status say(int device, std::uint32_t request, const Kept& kept);
  Status tell_all(int device) const;
  void end(Status cause);

  EventLoop& loop_;
  UniqueFd connection_;
  UniqueFd device_;
  Ended ended_;
  KeptMessages kept_;
  std::vector<KeptMessages> rings_;
  bool acknowledges_ = false;  // the front end wants replies where it asks for them
  std::unique_ptr<vhost_user::MessageReader> incoming_;
  EventLoop::Watch connection_watch_;
  EventLoop::Watch device_watch_;
};

}  // namespace anchorhold::vsock
