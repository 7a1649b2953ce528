// One guest's life in libvirt, shared by the owner's Machine, the workers and libvirt's events.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "hypervisor/hypervisor.h"
#include "libvirt/console_pump.h"
#include "libvirt/domain_xml.h"
#include "libvirt/driver.h"
#include "libvirt/qemu_process.h"
#include "libvirt/worker_pool.h"

namespace anchorhold::hypervisor {

// What all machines of one hypervisor use; it outlives them.
struct Workshop {
  std::shared_ptr<Driver> driver;
  XmlOptions xml;                  // all but the name, the console's socket and the environment
  std::filesystem::path launched;  // the QEMU that our launcher starts; empty: libvirt starts QEMU itself
  WorkerPool& pool;
  Executor& timers;
};

class GuestRun : public std::enable_shared_from_this<GuestRun> {
 public:
  using Done = Machine::Done;

  GuestRun(MachineSpec spec, Workshop workshop, Executor& owner, Hypervisor::OnExit on_exit);

  const MachineSpec& spec() const { return spec_; }
  MachineState state() const;
  std::optional<MachineExit> exit() const;
  void start(Done done);
  void stop(StopMode mode, Done done);
  void set_memory_target(ByteSize target, Done done);
  void memory(std::function<void(Result<MemoryStatistics>)> done);
  // The owner is gone: nothing is posted any more, and the guest ends.
  void abandon();
  // Ends the guest hard if it runs, and blocks until it is gone; false when it lived longer than the limit.
  bool wait_until_ended(std::chrono::milliseconds limit);
  void post_to_owner(std::function<void()> task);

 private:
  // On the strand.
  void run_start();
  Status create_domain();
  XmlOptions xml_options() const;
  void on_created(Status created);
  void on_stopped();
  void adopt_process();
  void on_process_gone();
  void finish(MachineExit exit);
  MachineExit judge_end() const;

  void on_event(DomainEvent event, const std::string& reason);
  void reach_time_limit();
  void request_end(std::chrono::milliseconds grace);
  void destroy();
  void press_power_button();

  const MachineSpec spec_;
  const Workshop workshop_;
  Executor& owner_;
  const std::string name_;
  const std::shared_ptr<Strand> strand_;

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  Hypervisor::OnExit on_exit_;
  MachineState state_ = MachineState::made;
  std::optional<MachineExit> exit_;
  bool abandoned_ = false;
  bool stop_requested_ = false;
  bool time_limit_reached_ = false;
  bool stopped_seen_ = false;  // by libvirt, or by the end of QEMU's process
  std::string shutdown_reason_;
  Done start_done_;
  std::vector<Done> stop_done_;

  std::optional<QemuProcess> process_;

  // Touched on the strand only.
  int process_watch_ = -1;
  DomainHandle domain_;
  std::unique_ptr<ConsolePump> console_;
  std::uint64_t oom_kills_before_ = 0;
};

}  // namespace anchorhold::hypervisor
