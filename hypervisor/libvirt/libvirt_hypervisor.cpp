#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "base/log.h"
#include "base/paths.h"
#include "hypervisor/libvirt.h"
#include "libvirt/acceleration.h"
#include "libvirt/emulator.h"
#include "libvirt/guest_run.h"
#include "libvirt/tsc.h"

namespace anchorhold::hypervisor {
namespace {

// Starting and ending each hold a thread for about a second.
constexpr unsigned worker_threads = 4;
constexpr std::chrono::seconds longest_end(30);

class LibvirtMachine : public Machine {
 public:
  explicit LibvirtMachine(std::shared_ptr<GuestRun> run) : run_(std::move(run)) {}
  ~LibvirtMachine() override { run_->abandon(); }
  const MachineId& id() const override { return run_->spec().id; }
  MachineState state() const override { return run_->state(); }
  std::optional<MachineExit> exit() const override { return run_->exit(); }
  void start(Done done) override { run_->start(std::move(done)); }
  void stop(StopMode mode, Done done) override { run_->stop(mode, std::move(done)); }
  void set_memory_target(ByteSize target, Done done) override {
    run_->set_memory_target(target, std::move(done));
  }
  void memory(std::function<void(Result<MemoryStatistics>)> done) override { run_->memory(std::move(done)); }

 private:
  std::shared_ptr<GuestRun> run_;
};

class LibvirtHypervisor : public Hypervisor {
 public:
  LibvirtHypervisor(std::shared_ptr<Driver> driver, Capabilities capabilities, XmlOptions xml,
                    std::filesystem::path launched)
      : driver_(std::move(driver)),
        capabilities_(std::move(capabilities)),
        xml_(std::move(xml)),
        launched_(std::move(launched)) {}

  ~LibvirtHypervisor() override {
    for (const auto& run : runs_) run->abandon();
    for (const auto& run : runs_)
      if (!run->wait_until_ended(longest_end))
        log_error(fmt::format("the machine {} did not end", run->spec().id.value()));
  }

  const Capabilities& capabilities() const override { return capabilities_; }

  Result<std::unique_ptr<Machine>> make(MachineSpec spec, Executor& executor, OnExit on_exit) override {
    ANCHORHOLD_CHECK(validate(spec));
    std::erase_if(runs_, [](const auto& run) { return run->state() == MachineState::ended; });
    for (const auto& run : runs_)
      if (run->spec().id == spec.id)
        return fail(ErrorCode::already_exists, fmt::format("there is a machine {} already", spec.id.value()));
    auto run = std::make_shared<GuestRun>(std::move(spec), Workshop{driver_, xml_, launched_, pool_, timers_},
                                          executor, std::move(on_exit));
    runs_.push_back(run);
    return std::unique_ptr<Machine>(new LibvirtMachine(std::move(run)));
  }

 private:
  // Members go in reverse: first the timers and the workers, whose tasks use the driver.
  std::shared_ptr<Driver> driver_;
  const Capabilities capabilities_;
  const XmlOptions xml_;
  const std::filesystem::path launched_;
  // Kept until they have ended, also when their owner is gone.
  std::vector<std::shared_ptr<GuestRun>> runs_;
  WorkerPool pool_{worker_threads};
  SerialExecutor timers_{"machine-timers"};
};

}  // namespace

Result<std::unique_ptr<Hypervisor>> make_libvirt_hypervisor(const LibvirtOptions& options) {
  auto emulator = ANCHORHOLD_TRY(find_emulator(options.emulator));
  auto driver = ANCHORHOLD_TRY(Driver::open(options));
  // A daemon's QEMU is the daemon's to confine.
  std::filesystem::path launched;
  if (driver->embedded()) launched = std::exchange(emulator, ANCHORHOLD_TRY(own_program("anchorhold-qemu")));
  auto decision = ANCHORHOLD_TRY(decide_acceleration(*driver, emulator, options));
  Capabilities capabilities;
  capabilities.backend = driver->description();
  capabilities.acceleration = decision.acceleration;
  capabilities.why_no_hardware = decision.why_no_hardware;
  capabilities.free_page_reporting = true;
  capabilities.balloon = true;
  capabilities.memory_statistics = true;
  capabilities.vhost_user_devices = true;
  XmlOptions xml;
  xml.acceleration = decision.acceleration;
  xml.emulator = emulator;
  if (decision.acceleration == Acceleration::emulation) xml.tsc_khz = measure_tsc_khz();
  return std::unique_ptr<Hypervisor>(
      new LibvirtHypervisor(std::move(driver), std::move(capabilities), std::move(xml), std::move(launched)));
}

}  // namespace anchorhold::hypervisor
