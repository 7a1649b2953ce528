// One guest from its start to its end: verified image, sealed devices, machine, the agent's stream, clock and
// mounts. Either all of it is there or none: a start that fails anywhere leaves nothing running, and when any
// part of a running guest is lost, the rest is ended and the first cause is kept.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/executor.h"
#include "events/event.h"
#include "hypervisor/hypervisor.h"
#include "images/verified_image.h"
#include "session/guest_client.h"
#include "vsock/device.h"

namespace anchorhold::session {

class ShareSet;
class WayOut;

// The steps of a start, in order.
enum class Stage {
  image,    // every byte of kernel, root file system and initial RAM disk is checked
  devices,  // the vsock device and the file servers listen and are sealed
  machine,  // the hypervisor has made the machine and its processor runs
  boot,     // until the guest's agent has dialled us
  hello,    // versions are agreed
  clock,    // the guest's clock is set
  mounts,   // the granted folders are at their places
};
std::string_view to_string(Stage stage);

struct StageTime {
  Stage stage;
  std::chrono::nanoseconds time;
};

struct GuestSpec {
  std::string image = "base";
  unsigned cpus = 0;  // 0: two, or what this computer has
  ByteSize memory;    // 0: 2 GiB, or what fits
  std::optional<std::chrono::milliseconds> wall_time;
  std::chrono::milliseconds boot_limit = std::chrono::minutes(4);  // generous: a busy or emulated computer
  std::size_t spare_devices = 4;  // for folders that are granted while it runs; as far as they fit
};

// What a guest is made with; all of it outlives the guest. The functions are what a test replaces.
struct GuestParts {
  hypervisor::Hypervisor& hypervisor;
  ShareSet& shares;           // of the session
  WayOut* way_out = nullptr;  // of the session; none: the guest has no network
  events::EventSink& events;
  const Clock& clock;
  std::function<Result<images::VerifiedImage>(const std::string& name)> verify_image;
  std::function<Result<std::unique_ptr<vsock::VsockDevice>>(vsock::VsockDeviceSpec,
                                                            vsock::VsockDeviceCallbacks)>
      start_vsock = [](vsock::VsockDeviceSpec spec, vsock::VsockDeviceCallbacks callbacks) {
        return vsock::VsockDevice::start(std::move(spec), std::move(callbacks));
      };
  // Called on the starting thread at the beginning of each stage.
  std::function<void(Stage)> progress = {};
};

class Guest {
 public:
  // Blocks until the guest is ready. The thread that calls it must live as long as the guest: the sealed
  // processes die with the thread that started them. A stop request is ErrorCode::cancelled.
  static Result<std::unique_ptr<Guest>> start(const GuestSpec& spec, const GuestParts& parts,
                                              std::stop_token stop);
  // Ends the guest hard if it still runs.
  ~Guest();
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  const hypervisor::MachineId& id() const;
  GuestClient& client();
  const std::vector<StageTime>& stages() const;
  unsigned cpus() const;
  ByteSize memory() const;

  // Safe from any thread.
  // Whether it can no longer be used.
  bool lost() const;
  // Why, once it is lost; waits a moment for the true cause when that is not known yet.
  std::string cause() const;
  // Whether it was ended because of GuestSpec::wall_time.
  bool reached_wall_time() const;
  // Called once, on a thread of the guest's, when it was lost other than by stop().
  void on_lost(std::function<void(const std::string& cause)> callback);

  // Lets commands end (SIGTERM, then SIGKILL after the grace), writes back the mounts, and ends the guest. Ok
  // also when it was lost before. Blocks; on the thread that started it.
  Status stop(std::string_view reason, std::chrono::milliseconds grace = std::chrono::milliseconds(0));

 private:
  struct State;
  class Starter;
  explicit Guest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What a guest gets when nobody says: half of what is available, at most 2 GiB, at least 512 MiB, in steps of
// 64 MiB. `meminfo` is the text of /proc/meminfo (proc(5)).
ByteSize default_memory(std::string_view meminfo);
unsigned default_cpus();

}  // namespace anchorhold::session
