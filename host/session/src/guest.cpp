#include "session/guest.h"

#include <charconv>
#include <condition_variable>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"
#include "base/paths.h"
#include "clock_watch.h"
#include "guest_folder.h"
#include "guest_life.h"
#include "share_set.h"
#include "vsock/ports.h"
#include "way_out.h"

namespace anchorhold::session {
namespace {

using std::chrono::milliseconds;

// How long the true cause of a broken stream may take to become known.
constexpr milliseconds cause_limit = std::chrono::seconds(5);
constexpr milliseconds machine_end_limit = std::chrono::seconds(30);
constexpr std::string_view root_device = "/dev/vda";

// A result that another thread delivers.
class Answer {
 public:
  std::function<void(Status)> callback() {
    return [state = state_](Status status) {
      std::lock_guard lock(state->mutex);
      state->status = std::move(status);
      state->changed.notify_all();
    };
  }
  // Nothing when it did not come in time.
  std::optional<Status> wait(milliseconds limit) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, limit, [&] { return state_->status.has_value(); });
    return state_->status;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> status;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

std::string_view to_string(Stage stage) {
  switch (stage) {
    case Stage::image:
      return "image";
    case Stage::devices:
      return "devices";
    case Stage::machine:
      return "machine";
    case Stage::boot:
      return "boot";
    case Stage::hello:
      return "hello";
    case Stage::clock:
      return "clock";
    case Stage::mounts:
      return "mounts";
  }
  return "unknown";
}

ByteSize default_memory(std::string_view meminfo) {
  constexpr ByteSize most = ByteSize::gib(2), least = ByteSize::mib(512), step = ByteSize::mib(64);
  constexpr std::string_view key = "MemAvailable:";
  std::size_t at = meminfo.find(key);
  if (at == std::string_view::npos) return most;
  at = meminfo.find_first_not_of(' ', at + key.size());
  std::uint64_t kib = 0;
  if (at == std::string_view::npos ||
      std::from_chars(meminfo.data() + at, meminfo.data() + meminfo.size(), kib).ec != std::errc())
    return most;
  ByteSize half{kib * 1024 / 2 / step.bytes * step.bytes};
  return std::clamp(half, least, most);
}

unsigned default_cpus() {
  return std::clamp(std::thread::hardware_concurrency(), 1u, 2u);
}

struct Guest::State {
  State(const GuestSpec& guest_spec, const GuestParts& guest_parts, GuestFolder guest_folder)
      : spec(guest_spec),
        hypervisor(guest_parts.hypervisor),
        clock(guest_parts.clock),
        folder(std::move(guest_folder)),
        executor(std::make_unique<SerialExecutor>("guest")),
        life(folder.path() / "console.log", *executor),
        events(guest_parts.events, {{std::string(events::key::vm_id), folder.id().value()}}) {}

  ~State() { take_down(); }

  Status record(events::Event event) { return events.record(std::move(event)); }
  void lost(const std::string& cause);
  void take_down();
  void set_clock();

  const GuestSpec spec;
  hypervisor::Hypervisor& hypervisor;
  const Clock& clock;
  unsigned cpus = 0;
  ByteSize memory;
  std::vector<StageTime> stages;

  GuestFolder folder;
  std::unique_ptr<SerialExecutor> executor;  // owns the machine
  GuestLife life;
  events::ContextSink events;
  std::optional<images::VerifiedImage> image;
  std::unique_ptr<vsock::VsockDevice> vsock;
  ShareSet* shares = nullptr;  // the session's; set while it serves this guest
  WayOut* way_out = nullptr;   // the same
  std::unique_ptr<hypervisor::Machine> machine;
  std::unique_ptr<GuestClient> client;
  std::unique_ptr<ClockWatch> clock_watch;
  std::mutex callback_mutex;
  std::optional<std::string> lost_cause;
  std::function<void(const std::string&)> on_lost;
};

// On the executor or a device's thread, once.
void Guest::State::lost(const std::string& cause) {
  executor->post([this, cause] {
    if (machine) machine->stop({}, [](Status) {});
    if (auto status = record(events::Event(events::vm_fail).set(events::key::cause, cause)); !status)
      log_error(status.error().message);
    std::function<void(const std::string&)> callback;
    {
      std::lock_guard lock(callback_mutex);
      lost_cause = cause;
      callback = std::exchange(on_lost, nullptr);
    }
    if (callback) callback(cause);
  });
}

void Guest::State::set_clock() {
  // The watch's thread waits here when the guest is busy; nobody else does.
  if (auto ahead = client->set_clock(clock.wall()); !ahead)
    log_warning("setting the guest's clock: " + ahead.error().message);
}

void Guest::State::take_down() {
  life.stopping();
  clock_watch.reset();
  if (machine) {
    Answer stopped;
    executor->post([this, done = stopped.callback()] { machine->stop({}, done); });
    if (!stopped.wait(machine_end_limit)) log_error("the virtual machine could not be ended in time");
    Answer destroyed;
    executor->post([this, done = destroyed.callback()] {
      machine.reset();
      done({});
    });
    destroyed.wait(machine_end_limit);
  }
  // The client stays, for those who still hold the guest: every call says that it is gone.
  if (auto* served = std::exchange(shares, nullptr)) served->end_guest();
  if (auto* served = std::exchange(way_out, nullptr)) served->end_guest();
  vsock.reset();
  executor.reset();
}

// The steps of a start.
class Guest::Starter {
 public:
  Starter(Guest::State& state, const GuestParts& parts, std::stop_token stop)
      : state_(state), parts_(parts), stop_(std::move(stop)) {}

  Status run() {
    ANCHORHOLD_CHECK(stage(Stage::image, [&] { return check_image(); }));
    ANCHORHOLD_CHECK(stage(Stage::devices, [&] { return start_devices(); }));
    ANCHORHOLD_CHECK(stage(Stage::machine, [&] { return start_machine(); }));
    ANCHORHOLD_CHECK(stage(Stage::boot, [&] { return await_agent(); }));
    ANCHORHOLD_CHECK(stage(Stage::hello, [&] { return say_hello(); }));
    ANCHORHOLD_CHECK(stage(Stage::clock, [&] { return set_clock(); }));
    return stage(Stage::mounts, [&] { return state_.shares->mount_in(*state_.client); });
  }

 private:
  template <typename Step>
  Status stage(Stage which, Step step) {
    if (stop_.stop_requested()) return fail(ErrorCode::cancelled, "the start was stopped");
    if (parts_.progress) parts_.progress(which);
    auto began = std::chrono::steady_clock::now();
    if (Status status = step(); !status) {
      // When the guest died meanwhile, that is the cause, not what was noticed of it.
      if (status.error().code == ErrorCode::unavailable && state_.life.lost())
        status.error().message = state_.life.cause(cause_limit);
      return fail(std::move(status).error());
    }
    state_.stages.push_back({which, std::chrono::steady_clock::now() - began});
    return {};
  }

  Status check_image();
  Status start_devices();
  Status start_machine();
  Status await_agent();
  Status say_hello();
  Status set_clock();
  hypervisor::MachineSpec describe_machine() const;

  Guest::State& state_;
  const GuestParts& parts_;
  std::stop_token stop_;
  UniqueFd stream_;
};

Status Guest::Starter::check_image() {
  state_.image = ANCHORHOLD_TRY(parts_.verify_image(state_.spec.image));
  return {};
}

Status Guest::Starter::start_devices() {
  GuestLife& life = state_.life;
  vsock::VsockDeviceSpec device;
  device.socket_path = state_.folder.path() / "vsock";
  vsock::VsockDeviceCallbacks callbacks;
  callbacks.ended = [&life](const Error& why) { life.part_ended("the vsock device", why); };
  callbacks.refused = [&state = state_](std::uint32_t port, std::uint64_t times) {
    state.executor->post([&state, port, times] {
      auto event = events::Event(events::vsock_refuse);
      event.set("vsock.port", std::int64_t{port}).set("attempts", times);
      if (auto status = state.record(std::move(event)); !status) log_error(status.error().message);
    });
  };
  callbacks.violated = [&state = state_](std::uint32_t port, std::string what) {
    state.executor->post([&state, port, what = std::move(what)] {
      auto event = events::Event(events::vsock_violation);
      event.set("vsock.port", std::int64_t{port}).set(events::key::cause, what);
      if (auto status = state.record(std::move(event)); !status) log_error(status.error().message);
    });
  };
  state_.vsock = ANCHORHOLD_TRY(parts_.start_vsock(std::move(device), std::move(callbacks)));
  ANCHORHOLD_CHECK(state_.vsock->listen(
      vsock::host_port::agent, [&life](UniqueFd stream) { life.stream_arrived(std::move(stream)); }));
  if (parts_.way_out)
    ANCHORHOLD_CHECK(state_.vsock->listen(
        vsock::host_port::egress,
        [way_out = parts_.way_out](UniqueFd stream) { way_out->adopt(std::move(stream)); }));
  state_.shares = &parts_.shares;
  return state_.shares->serve_guest(state_.folder.path(), life, state_.spec.spare_devices);
}

hypervisor::MachineSpec Guest::Starter::describe_machine() const {
  hypervisor::MachineSpec machine;
  machine.id = state_.folder.id();
  machine.kernel = state_.image->kernel().path;
  machine.initrd = state_.image->initrd().path;
  machine.rootfs = state_.image->rootfs().path;
  // What commands write outside the granted folders lives in the guest's memory.
  const ByteSize scratch{state_.memory.bytes / 2};
  machine.kernel_words = {state_.image->kernel_command_line(root_device, scratch)};
  machine.vcpus = state_.cpus;
  machine.memory = state_.memory;
  machine.vsock_socket = state_.folder.path() / "vsock";
  machine.shares = state_.shares->specs(state_.folder.path());
  machine.console.path = state_.folder.path() / "console.log";
  machine.wall_time = state_.spec.wall_time;
  return machine;
}

Status Guest::Starter::start_machine() {
  const auto& capabilities = parts_.hypervisor.capabilities();
  auto start = events::Event(events::vm_start);
  if (state_.spec.wall_time) start.set("vm.wall_time_ms", std::int64_t{state_.spec.wall_time->count()});
  ANCHORHOLD_CHECK(state_.record(
      start.set("image.name", state_.spec.image)
          .set("image.key", state_.image->key_id())
          .set("image.kernel.digest", state_.image->manifest().kernel.digest)
          .set("image.rootfs.digest", state_.image->manifest().rootfs.digest)
          .set("vm.cpus", std::int64_t{state_.cpus})
          .set("vm.memory", state_.memory.bytes)
          .set("vm.acceleration",
               capabilities.acceleration == hypervisor::Acceleration::hardware ? "hardware" : "emulation")));
  GuestLife& life = state_.life;
  state_.machine = ANCHORHOLD_TRY(
      parts_.hypervisor.make(describe_machine(), *state_.executor,
                             [&life](const hypervisor::MachineExit& exit) { life.machine_ended(exit); }));
  Answer started;
  state_.executor->post([&state = state_, done = started.callback()] { state.machine->start(done); });
  for (;;) {
    if (auto status = started.wait(milliseconds(100))) {
      if (!*status) return fail(with_context(status->error(), "starting the virtual machine"));
      return {};
    }
    if (stop_.stop_requested()) return fail(ErrorCode::cancelled, "the start was stopped");
  }
}

Status Guest::Starter::await_agent() {
  UniqueFd stream = ANCHORHOLD_TRY(state_.life.wait_for_stream(state_.spec.boot_limit, stop_));
  stream_ = std::move(stream);
  return {};
}

Status Guest::Starter::say_hello() {
  GuestClientSpec spec;
  spec.session_token = parts_.way_out ? parts_.way_out->token() : random_hex(32);
  spec.lost_cause = [&life = state_.life] { return life.cause(cause_limit); };
  state_.client = ANCHORHOLD_TRY(GuestClient::connect(std::move(stream_), std::move(spec)));
  if (!parts_.way_out) return {};
  state_.way_out = parts_.way_out;
  return state_.way_out->serve(*state_.client);
}

Status Guest::Starter::set_clock() {
  ANCHORHOLD_TRY(state_.client->set_clock(state_.clock.wall()));
  state_.clock_watch = ANCHORHOLD_TRY(ClockWatch::start([&state = state_] { state.set_clock(); }));
  return {};
}

Result<std::unique_ptr<Guest>> Guest::start(const GuestSpec& spec, const GuestParts& parts,
                                            std::stop_token stop) {
  auto runtime = ANCHORHOLD_TRY(runtime_directory());
  auto folder = ANCHORHOLD_TRY(GuestFolder::create(guests_folder(runtime)));
  auto state = std::make_unique<State>(spec, parts, std::move(folder));
  state->cpus = spec.cpus > 0 ? spec.cpus : default_cpus();
  state->memory = spec.memory;
  if (state->memory.bytes == 0)
    state->memory = default_memory(read_file("/proc/meminfo", 1 << 20).value_or(""));

  if (Status started = Starter(*state, parts, stop).run(); !started) {
    Error error = std::move(started).error();
    state->life.stopping();
    const auto& name = error.code == ErrorCode::cancelled ? events::vm_stop : events::vm_fail;
    if (auto status = state->record(events::Event(name).set(events::key::cause, error.message)); !status)
      log_error(status.error().message);
    return fail(with_context(std::move(error), "the guest did not start"));
  }
  auto ready = events::Event(events::vm_ready);
  ready.set_guest_reported("agent.version", state->client->info().version)
      .set_guest_reported("kernel", state->client->info().kernel);
  for (const auto& [stage, time] : state->stages)
    ready.set(fmt::format("stage.{}_ms", to_string(stage)),
              std::int64_t{std::chrono::duration_cast<milliseconds>(time).count()});
  ANCHORHOLD_CHECK(state->record(std::move(ready)));
  // Until here a loss made the start fail; from now on somebody must be told.
  state->life.on_lost([&state = *state](const std::string& cause) { state.lost(cause); });
  return std::unique_ptr<Guest>(new Guest(std::move(state)));
}

Guest::Guest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Guest::~Guest() {
  (void)stop("its session ended");
}

const hypervisor::MachineId& Guest::id() const {
  return state_->folder.id();
}
GuestClient& Guest::client() {
  return *state_->client;
}
const std::vector<StageTime>& Guest::stages() const {
  return state_->stages;
}
unsigned Guest::cpus() const {
  return state_->cpus;
}
ByteSize Guest::memory() const {
  return state_->memory;
}
bool Guest::lost() const {
  return state_->life.lost() || state_->client->lost();
}
std::string Guest::cause() const {
  return state_->life.cause(cause_limit);
}
bool Guest::reached_wall_time() const {
  return state_->life.reached_wall_time();
}

void Guest::on_lost(std::function<void(const std::string&)> callback) {
  std::unique_lock lock(state_->callback_mutex);
  if (!state_->lost_cause) {
    state_->on_lost = std::move(callback);
    return;
  }
  std::string cause = *state_->lost_cause;
  lock.unlock();
  callback(cause);
}

Status Guest::stop(std::string_view reason, milliseconds grace) {
  if (!state_->machine) return {};  // stopped before
  bool was_lost = lost();
  if (!was_lost) {
    state_->life.stopping();
    // Answered once everything is written back; ending the machine after that loses nothing.
    if (auto status = state_->client->shutdown(grace); !status)
      log_warning("ending the guest: " + status.error().message);
  }
  state_->take_down();
  if (was_lost) return {};
  return state_->record(events::Event(events::vm_stop).set(events::key::cause, reason));
}

}  // namespace anchorhold::session
