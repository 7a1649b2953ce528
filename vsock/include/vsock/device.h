// The host's handle on one guest's vsock device: the sealed process anchorhold-vsockd, which speaks to the
// guest so that this process never touches guest memory. Streams are plain unix stream sockets; bytes written
// by one side come out at the other, in order, with back-pressure and half-close (shutdown(2)) both ways.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::vsock {

struct VsockDeviceSpec {
  std::uint32_t guest_cid = 3;        // 3 or more; seen only by this guest
  std::filesystem::path socket_path;  // made here, for the front end (QEMU); at most 107 bytes
  std::filesystem::path program;      // anchorhold-vsockd; empty: own_program()
  bool allow_weak = false;            // see SealPolicy::allow_weak
};

struct VsockStatistics {
  std::uint64_t bytes_to_guest = 0;
  std::uint64_t bytes_from_guest = 0;
  std::uint32_t open_streams = 0;
  std::uint64_t accepted = 0;         // guest → host
  std::uint64_t dialed = 0;           // host → guest, established
  std::uint64_t refused = 0;          // guest → host, to ports that are not open
  std::uint64_t dropped_packets = 0;  // forged source, unknown type, malformed
  std::uint64_t resets = 0;           // streams ended for breaking the protocol
};

// Reported from the device's own thread; callbacks must not block and must not destroy the device.
struct VsockDeviceCallbacks {
  // The guest dialled a port that is not open. `times` counts attempts since the last report (floods are
  // folded).
  std::function<void(std::uint32_t port, std::uint64_t times)> refused;
  // The guest broke the rules of what the port carries (a gRPC message that is too long); its stream was
  // reset.
  std::function<void(std::uint32_t port, std::string what)> violated;
  // The process is gone, and with it every stream; the guest cannot get another one. Called once. `cause` is
  // the true one: what the device found wrong, how the process ended, or (unavailable) that the virtual
  // machine closed it.
  std::function<void(Error cause)> ended;
};

// Safe from any thread. Destroying it ends the process, closes its streams at the guest, and removes the
// socket.
class VsockDevice {
 public:
  using Accept = std::function<void(UniqueFd stream)>;
  using Dialed = std::function<void(Result<UniqueFd> stream)>;

  // Returns once the socket is listening and the process is sealed.
  static Result<std::unique_ptr<VsockDevice>> start(VsockDeviceSpec spec,
                                                    VsockDeviceCallbacks callbacks = {});
  virtual ~VsockDevice() = default;

  // Opens a host port: each stream the guest dials there from now on is given to `accept`, on the device's
  // thread.
  // What the port carries (vsock/ports.h) is held to its bounds. already_exists when it is open.
  virtual Status listen(std::uint32_t port, Accept accept) = 0;
  // Streams that exist stay; new ones are refused.
  virtual Status unlisten(std::uint32_t port) = 0;
  // Connects to a port of the guest. `unavailable`: nobody listens there, or the device is gone.
  // The callback is called exactly once, on the device's thread.
  virtual void dial(std::uint32_t port, std::chrono::milliseconds limit, Dialed dialed) = 0;
  // The same, waiting for it; never on the device's thread.
  Result<UniqueFd> dial(std::uint32_t port, std::chrono::milliseconds limit = std::chrono::seconds(10));
  virtual Result<VsockStatistics> statistics() = 0;

  virtual const std::filesystem::path& socket_path() const = 0;
  virtual int pid() const = 0;
  // Readable when the process has ended (poll); owned by the device.
  virtual int pidfd() const = 0;
};

}  // namespace anchorhold::vsock
