#include "fakes/hypervisor.h"

#include <algorithm>

namespace anchorhold::hypervisor {

struct FakeHypervisor::Run {
  MachineSpec spec;
  Executor& executor;
  OnExit on_exit;
  mutable std::mutex mutex;
  MachineState state = MachineState::made;
  std::optional<MachineExit> exit;
  bool abandoned = false;
  ByteSize memory;
  std::vector<Machine::Done> stopping;

  MachineState read_state() const {
    std::lock_guard lock(mutex);
    return state;
  }
  void set_state(MachineState next) {
    std::lock_guard lock(mutex);
    state = next;
  }
};

class FakeMachine : public Machine {
 public:
  FakeMachine(FakeHypervisor& hypervisor, std::shared_ptr<FakeHypervisor::Run> run)
      : hypervisor_(hypervisor), run_(std::move(run)) {}
  ~FakeMachine() override {
    std::lock_guard lock(run_->mutex);
    run_->abandoned = true;
    run_->state = MachineState::ended;
  }

  const MachineId& id() const override { return run_->spec.id; }
  MachineState state() const override { return run_->read_state(); }
  std::optional<MachineExit> exit() const override {
    std::lock_guard lock(run_->mutex);
    return run_->exit;
  }

  void start(Done done) override {
    if (state() != MachineState::made)
      return answer(std::move(done), fail(ErrorCode::failed_precondition, "a machine is started once only"));
    run_->set_state(MachineState::starting);
    FakeHypervisor::post(run_, [run = run_, &hypervisor = hypervisor_, done = std::move(done)] {
      if (run->read_state() != MachineState::starting)
        return done(fail(ErrorCode::cancelled, "the machine was stopped before it ran"));
      if (hypervisor.fail_start_) {
        Error error = *std::exchange(hypervisor.fail_start_, std::nullopt);
        done(fail(error));
        return FakeHypervisor::finish(run, {ExitCause::start_failed, error.message});
      }
      run->set_state(MachineState::running);
      done({});
      if (hypervisor.on_running_) hypervisor.on_running_(run->spec);
    });
    if (run_->spec.wall_time)
      run_->executor.post_after(*run_->spec.wall_time, [run = run_] {
        FakeHypervisor::finish(run, {ExitCause::time_limit, "it ran for its limit"});
      });
  }

  void stop(StopMode mode, Done done) override {
    if (state() == MachineState::ended) return answer(std::move(done), {});
    if (done) run_->stopping.push_back(std::move(done));
    run_->set_state(MachineState::stopping);
    auto end = [run = run_] { FakeHypervisor::finish(run, {ExitCause::stopped, ""}); };
    if (hypervisor_.ignore_power_button_ && mode.grace.count() > 0) {
      run_->executor.post_after(mode.grace, end);
    } else {
      run_->executor.post(end);
    }
  }

  void set_memory_target(ByteSize target, Done done) override {
    Status status;
    if (!hypervisor_.capabilities().balloon)
      status = fail(ErrorCode::unsupported, "this hypervisor has no balloon");
    if (status && state() != MachineState::running) status = not_running();
    if (status) run_->memory = target;
    answer(std::move(done), std::move(status));
  }

  void memory(std::function<void(Result<MemoryStatistics>)> done) override {
    Result<MemoryStatistics> result =
        MemoryStatistics{run_->memory, run_->memory, std::nullopt, std::nullopt};
    if (state() != MachineState::running) result = fail(not_running().error());
    FakeHypervisor::post(run_, [done = std::move(done), result] { done(result); });
  }

 private:
  static Status not_running() { return fail(ErrorCode::failed_precondition, "the machine does not run"); }
  void answer(Done done, Status status) {
    if (done)
      FakeHypervisor::post(run_, [done = std::move(done), status = std::move(status)] { done(status); });
  }

  FakeHypervisor& hypervisor_;
  std::shared_ptr<FakeHypervisor::Run> run_;
};

FakeHypervisor::FakeHypervisor(Capabilities capabilities) : capabilities_(std::move(capabilities)) {}
FakeHypervisor::~FakeHypervisor() = default;

Capabilities FakeHypervisor::fake_capabilities() {
  Capabilities capabilities;
  capabilities.backend = "fake";
  capabilities.why_no_hardware = "there is no machine at all";
  capabilities.free_page_reporting = capabilities.balloon = capabilities.memory_statistics = true;
  capabilities.vhost_user_devices = true;
  return capabilities;
}

Result<std::unique_ptr<Machine>> FakeHypervisor::make(MachineSpec spec, Executor& executor, OnExit on_exit) {
  if (fail_make_) return fail(*std::exchange(fail_make_, std::nullopt));
  ANCHORHOLD_CHECK(validate(spec));
  for (const auto& weak : runs_)
    if (auto run = weak.lock(); run && run->spec.id == spec.id && run->read_state() != MachineState::ended)
      return fail(ErrorCode::already_exists, "there is a machine " + spec.id.value() + " already");
  made_.push_back(spec);
  std::shared_ptr<Run> run(new Run{.spec = std::move(spec),
                                   .executor = executor,
                                   .on_exit = std::move(on_exit),
                                   .mutex = {},
                                   .exit = {},
                                   .memory = {},
                                   .stopping = {}});
  run->memory = run->spec.memory;
  runs_.push_back(run);
  return std::unique_ptr<Machine>(new FakeMachine(*this, std::move(run)));
}

void FakeHypervisor::post(const std::shared_ptr<Run>& run, std::function<void()> task) {
  run->executor.post([run, task = std::move(task)] {
    {
      std::lock_guard lock(run->mutex);
      if (run->abandoned) return;
    }
    task();
  });
}

void FakeHypervisor::finish(const std::shared_ptr<Run>& run, MachineExit exit) {
  std::vector<Machine::Done> waiting;
  {
    std::lock_guard lock(run->mutex);
    if (run->abandoned || run->state == MachineState::ended) return;
    run->state = MachineState::ended;
    run->exit = exit;
    waiting.swap(run->stopping);
  }
  // What is called may destroy the machine.
  if (run->on_exit) run->on_exit(exit);
  for (auto& done : waiting) post(run, [done = std::move(done)] { done({}); });
}

bool FakeHypervisor::end_guest(const MachineId& id, MachineExit exit) {
  for (const auto& weak : runs_) {
    auto run = weak.lock();
    if (!run || run->spec.id != id || run->read_state() != MachineState::running) continue;
    run->executor.post([run, exit = std::move(exit)] { finish(run, exit); });
    return true;
  }
  return false;
}

std::size_t FakeHypervisor::running() const {
  return static_cast<std::size_t>(std::count_if(runs_.begin(), runs_.end(), [](const auto& weak) {
    auto run = weak.lock();
    return run && run->read_state() == MachineState::running;
  }));
}

}  // namespace anchorhold::hypervisor
