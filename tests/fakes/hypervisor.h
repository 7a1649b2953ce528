// A hypervisor without guests: machines that pass through the same states as real ones, failures on demand,
// and a record of what was asked for. Sibling of LibvirtHypervisor.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hypervisor/hypervisor.h"

namespace anchorhold::hypervisor {

// Everything happens on the executor given to make(); with a ManualExecutor a test steps it, time limits
// included.
class FakeHypervisor : public Hypervisor {
 public:
  explicit FakeHypervisor(Capabilities capabilities = fake_capabilities());
  ~FakeHypervisor() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::unique_ptr<Machine>> make(MachineSpec spec, Executor& executor, OnExit on_exit) override;

  // What the next call of its kind answers instead of working.
  void fail_next_make(Error error) { fail_make_ = std::move(error); }
  void fail_next_start(Error error) { fail_start_ = std::move(error); }
  // A guest that ignores the power button is ended when its grace is over.
  void ignore_power_button(bool ignore) { ignore_power_button_ = ignore; }
  // Called when a machine runs: a test's guest begins here.
  void on_running(std::function<void(const MachineSpec&)> call) { on_running_ = std::move(call); }

  // What happens to a running machine from inside or outside; false when there is no such machine running.
  bool end_guest(const MachineId& id, MachineExit exit);

  const std::vector<MachineSpec>& made() const { return made_; }
  std::size_t running() const;

 private:
  friend class FakeMachine;
  struct Run;
  static Capabilities fake_capabilities();
  static void finish(const std::shared_ptr<Run>& run, MachineExit exit);
  static void post(const std::shared_ptr<Run>& run, std::function<void()> task);

  const Capabilities capabilities_;
  std::optional<Error> fail_make_;
  std::optional<Error> fail_start_;
  bool ignore_power_button_ = false;
  std::function<void(const MachineSpec&)> on_running_;
  std::vector<MachineSpec> made_;
  std::vector<std::weak_ptr<Run>> runs_;
};

}  // namespace anchorhold::hypervisor
