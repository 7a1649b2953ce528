// Virtual machines as the host sees them: a Hypervisor makes a Machine, a Machine acts, a MachineSpec
// describes. Nothing here belongs to one platform; what a backend can do beyond the minimum is said by its
// Capabilities.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/executor.h"
#include "base/id.h"
#include "base/units.h"

namespace anchorhold::hypervisor {

// 1 to 40 characters of [a-z0-9-], unique among one person's machines; new_short_id() makes a good one.
using MachineId = Id<struct MachineTag>;

// A folder of the host that a file server of ours offers to the guest. All of them are named before the
// start: what is granted later takes the place of one that was kept for it.
struct ShareSpec {
  std::string tag;  // the guest mounts it by this name: 1 to 36 bytes of [a-zA-Z0-9._-] (virtio 1.2, 5.11.4)
  std::filesystem::path socket_path;  // where the file server listens (vhost-user); listening before start()
};

// What the guest prints on its serial console. Bounded: the end of the output is kept and the file never
// holds more.
struct ConsoleLog {
  std::filesystem::path path;
  ByteSize limit = ByteSize::mib(1);
};

// microvm has the fewest devices and needs a kernel that boots through PVH; q35 takes any kernel.
enum class MachineType { automatic, microvm, q35 };

struct MachineSpec {
  MachineId id;
  std::filesystem::path kernel;
  std::filesystem::path initrd;           // empty: none
  std::filesystem::path rootfs;           // a disk image, given read-only; empty: none
  std::vector<std::string> kernel_words;  // joined by spaces behind the backend's own (console, clock)
  unsigned vcpus = 2;
  ByteSize memory = ByteSize::mib(1024);
  std::filesystem::path vsock_socket;  // where the vsock device listens (vhost-user); empty: no door at all
  std::vector<ShareSpec> shares;
  ConsoleLog console;
  std::optional<std::chrono::milliseconds> wall_time;  // the machine is ended this long after its start
  MachineType type = MachineType::automatic;
};

// Ok, or an error that names the field, the value and what is allowed. Looks at the text only, not at the
// disk.
Status validate(const MachineSpec& spec);

inline constexpr unsigned max_vcpus = 64;
inline constexpr ByteSize min_memory = ByteSize::mib(64);
inline constexpr ByteSize max_memory = ByteSize::gib(256);
inline constexpr std::size_t max_shares = 20;

enum class Acceleration {
  hardware,   // the processor's own virtualization, shown to work by running a guest
  emulation,  // every instruction translated: correct, about ten times slower
};

struct Capabilities {
  std::string backend;  // "libvirt 9.0.0, QEMU 7.2.18": for people
  Acceleration acceleration = Acceleration::emulation;
  std::string why_no_hardware;       // one sentence for the person; empty with hardware
  bool free_page_reporting = false;  // pages the guest freed return to the host by themselves
  bool balloon = false;              // set_memory_target() works
  bool memory_statistics = false;    // memory() tells what the guest uses, not only what the host gave
  bool vhost_user_devices = false;  // vsock_socket and ShareSpec::socket_path are served by processes of ours
};

enum class MachineState { made, starting, running, stopping, ended };
std::string_view to_string(MachineState state);

enum class ExitCause {
  guest_shutdown,  // the guest powered itself off
  guest_reset,     // the guest rebooted, which ends it here; a kernel panic looks like this
  stopped,         // stop() of ours
  time_limit,      // MachineSpec::wall_time was reached
  process_lost,    // the process that ran the guest was killed from outside or crashed
  start_failed,    // never ran
};
std::string_view to_string(ExitCause cause);

struct MachineExit {
  ExitCause cause = ExitCause::stopped;
  std::string detail;  // what is known besides, printable, at most a few lines
};

struct MemoryStatistics {
  ByteSize given;                        // MachineSpec::memory, or the target
  ByteSize resident;                     // host memory the machine occupies now, 0: unknown
  std::optional<ByteSize> guest_unused;  // as the guest's balloon driver tells
  std::optional<ByteSize> guest_total;
};

struct StopMode {
  // Time for the guest to power off after being asked (power button); it is ended hard afterwards. 0: at
  // once.
  std::chrono::milliseconds grace{0};
};

// One guest, from start() to its end; not to be started twice. Every member is called on the thread of its
// owner, returns at once, and posts its result to the executor given to Hypervisor::make(). Destruction ends
// the guest hard, in the background, and posts nothing afterwards.
class Machine {
 public:
  using Done = std::function<void(Status)>;

  virtual ~Machine() = default;
  virtual const MachineId& id() const = 0;
  // These two may be called from any thread.
  virtual MachineState state() const = 0;
  virtual std::optional<MachineExit> exit() const = 0;

  // Ok means the guest's processor runs; readiness is for the guest's agent to tell.
  virtual void start(Done done) = 0;
  // Ok when the guest is gone, also when it had ended before.
  virtual void stop(StopMode mode, Done done) = 0;

  // Needs Capabilities::balloon. The guest's driver gives memory back down to this size, or may take it
  // again.
  virtual void set_memory_target(ByteSize target, Done done) = 0;
  virtual void memory(std::function<void(Result<MemoryStatistics>)> done) = 0;
};

// Makes machines. Lives longer than all of them; its destruction waits until every guest is gone. Owned by
// one thread.
class Hypervisor {
 public:
  using OnExit = std::function<void(const MachineExit&)>;

  virtual ~Hypervisor() = default;
  virtual const Capabilities& capabilities() const = 0;
  // Checks the spec and starts nothing. on_exit is posted to the executor once, whatever the end was (also
  // when start() failed). The executor outlives the machine.
  virtual Result<std::unique_ptr<Machine>> make(MachineSpec spec, Executor& executor, OnExit on_exit) = 0;
};

}  // namespace anchorhold::hypervisor
