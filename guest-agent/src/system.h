// What the agent does to the whole guest: its clock, its shares, its end; and what it knows of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <sys/types.h>

#include "base/error.h"
#include "proto/guest.pb.h"

namespace anchorhold::guest {

namespace wire = ::anchorhold::guest::v1;

class System {
 public:
  virtual ~System() = default;
  // Gives back the time before, in nanoseconds since 1970.
  virtual Result<std::int64_t> set_clock(std::int64_t unix_time_ns) = 0;
  // These may block as long as the share's host does. Gives back the path.
  virtual Result<std::string> mount_share(const wire::MountRequest& request) = 0;
  virtual Status unmount_share(const std::string& name, bool detach) = 0;
  virtual Status announce(const wire::AnnounceRequest& request) = 0;
  // From now on programs of the guest reach the host's egress port and trust this authority (PEM). Again:
  // another authority. Gives back what the environment of commands needs. Blocks.
  virtual Result<std::map<std::string, std::string>> configure_network(const std::string& authority_pem) = 0;
  // Unmounts what can be unmounted and writes back the rest. Blocks.
  virtual void write_back() = 0;
  // Does not return in a guest.
  virtual void power_off() = 0;
};

// The guest itself: this process is its PID 1.
std::unique_ptr<System> guest_system();
// An agent that is an ordinary process on somebody's machine touches nothing of it.
std::unique_ptr<System> hosted_system();

// A name below /mnt: one component, printable, not hidden.
Status check_share_name(const std::string& name);

struct MemoryInfo {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes = 0;
};
MemoryInfo read_memory_info();
void fill_statistics(wire::GetStatisticsReply& reply);

}  // namespace anchorhold::guest
