// Real guests for tests, booted through the product's own rooms: a session starts the verified image that
// ANCHORHOLD_TEST_IMAGE names, under libvirt, with the sealed vsock device, and gives the client of its
// agent.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "hypervisor/libvirt.h"
#include "session/session.h"

namespace anchorhold::testing {

struct RealGuestOptions {
  unsigned cpus = 2;
  ByteSize memory = ByteSize::mib(1024);
  std::vector<mounts::Grant> grants;
  const Clock* clock = nullptr;  // null: the real one
  hypervisor::LibvirtOptions hypervisor = {};
};

class RealGuest {
 public:
  // Why this machine cannot run one; empty when it can. For GTEST_SKIP().
  static std::string why_not();

  static Result<std::unique_ptr<RealGuest>> boot(RealGuestOptions options = {});
  ~RealGuest();

  session::Session& session() { return *session_; }
  session::Guest& guest() { return *guest_; }
  session::GuestClient& client() { return guest_->client(); }

  // Its door, for streams beside the agent's.
  vsock::VsockDevice& device() { return *device_; }

  // SIGKILL to the process that runs the machine, as a crash or the kernel's memory killer would do.
  Status kill_machine();

 private:
  class Sink;
  RealGuest();
  std::unique_ptr<Sink> sink_;
  SystemClock clock_;
  vsock::VsockDevice* device_ = nullptr;  // of guest_
  std::unique_ptr<session::Session> session_;
  std::shared_ptr<session::Guest> guest_;
};

// The processes with this parent and name. Found by what everybody may read of them: a sealed process shows
// an ordinary user not even which program it runs.
std::vector<pid_t> children_named(pid_t parent, std::string_view name);

// One guest for all tests of a process that want no other; booted at the first use, and again when it was
// lost. Ended by GuestEnvironment, which main() registers.
RealGuest& shared_guest();
void end_shared_guest();

}  // namespace anchorhold::testing
