#include "libvirt/guest_run.h"

#include <fmt/format.h>
#include <libvirt/virterror.h>

#include "base/id.h"
#include "base/log.h"
#include "launcher/view.h"
#include "libvirt/event_loop.h"
#include "libvirt/exit_cause.h"

namespace anchorhold::hypervisor {
namespace {

constexpr std::chrono::seconds longest_last_words(5);

}  // namespace

GuestRun::GuestRun(MachineSpec spec, Workshop workshop, Executor& owner, Hypervisor::OnExit on_exit)
    : spec_(std::move(spec)),
      workshop_(std::move(workshop)),
      owner_(owner),
      name_(domain_name(spec_.id, random_hex(3))),
      strand_(std::make_shared<Strand>(workshop_.pool)),
      on_exit_(std::move(on_exit)) {}

MachineState GuestRun::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

std::optional<MachineExit> GuestRun::exit() const {
  std::lock_guard lock(mutex_);
  return exit_;
}

void GuestRun::post_to_owner(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (abandoned_) return;
  owner_.post([self = shared_from_this(), task = std::move(task)] {
    {
      std::lock_guard inner(self->mutex_);
      if (self->abandoned_) return;
    }
    task();
  });
}

void GuestRun::start(Done done) {
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    first = state_ == MachineState::made;
    if (first) {
      state_ = MachineState::starting;
      start_done_ = std::exchange(done, nullptr);
    }
  }
  if (!first)
    return post_to_owner([done = std::move(done)] {
      done(fail(ErrorCode::failed_precondition, "a machine is started once only"));
    });
  if (spec_.wall_time)
    workshop_.timers.post_after(*spec_.wall_time, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->reach_time_limit();
    });
  strand_->post([self = shared_from_this()] { self->run_start(); });
}

void GuestRun::run_start() {
  {
    std::lock_guard lock(mutex_);
    if (state_ == MachineState::ended) return;
  }
  on_created(create_domain());
}

XmlOptions GuestRun::xml_options() const {
  XmlOptions options = workshop_.xml;
  options.name = name_;
  options.console_socket = workshop_.driver->console_socket(name_);
  if (workshop_.launched.empty()) return options;
  QemuView view;
  view.read = {spec_.kernel};
  for (const auto* path : {&spec_.initrd, &spec_.rootfs})
    if (!path->empty()) view.read.push_back(*path);
  // libvirt keeps each machine's sockets and secrets there; its own notes are elsewhere.
  view.write = {workshop_.driver->folder() / "lib" / "qemu"};
  options.environment = {{program_variable, workshop_.launched.string()}, {view_variable, encode_view(view)}};
  return options;
}

Status GuestRun::create_domain() {
  {
    std::lock_guard lock(mutex_);
    if (stop_requested_ || time_limit_reached_)
      return fail(ErrorCode::cancelled, "the machine was stopped before it ran");
  }
  XmlOptions options = xml_options();
  console_ = ANCHORHOLD_TRY(ConsolePump::start(options.console_socket, spec_.console));
  workshop_.driver->subscribe(name_, [weak = weak_from_this()](DomainEvent event, const std::string& reason) {
    if (auto self = weak.lock()) self->on_event(event, reason);
  });
  oom_kills_before_ = count_oom_kills();
  // The embedded driver refuses autodestroy; there the reaper does it.
  unsigned flags = workshop_.driver->embedded() ? VIR_DOMAIN_NONE : VIR_DOMAIN_START_AUTODESTROY;
  domain_.reset(
      virDomainCreateXML(workshop_.driver->connection(), domain_xml(spec_, options).c_str(), flags));
  if (!domain_) return fail(last_libvirt_error(fmt::format("starting the machine {}", spec_.id.value())));
  adopt_process();
  return {};
}

// The end of QEMU is seen at once this way; libvirt's own event comes up to seconds later, and remains the
// only sign with a daemon, whose processes are not ours.
void GuestRun::adopt_process() {
  int pidfd = -1;
  {
    std::lock_guard lock(mutex_);
    if (!process_)
      process_ = QemuProcess::find(workshop_.driver->pid_file(name_), workshop_.driver->folder());
    if (!process_) return;
    pidfd = process_->pidfd();
  }
  process_watch_ = watch_readable(pidfd, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->strand_->post([self] { self->on_process_gone(); });
  });
}

void GuestRun::on_process_gone() {
  {
    std::lock_guard lock(mutex_);
    if (state_ == MachineState::ended) return;
    // QEMU's last words may still be on their way through libvirt, which says so when it has heard all.
    if (shutdown_reason_.empty() && !stop_requested_ && !time_limit_reached_ && !stopped_seen_) {
      workshop_.timers.post_after(longest_last_words, [weak = weak_from_this()] {
        if (auto self = weak.lock()) self->strand_->post([self] { self->on_stopped(); });
      });
      return;
    }
  }
  finish(judge_end());
}

void GuestRun::on_created(Status created) {
  Done done;
  bool end_now = false, has_ended = false;
  {
    std::lock_guard lock(mutex_);
    done = std::move(start_done_);
    end_now = stop_requested_ || time_limit_reached_;
    has_ended = !created || stopped_seen_;
    if (!has_ended && !end_now) state_ = MachineState::running;
  }
  if (!created && end_now) created = fail(ErrorCode::cancelled, "the machine was stopped before it ran");
  if (done) post_to_owner([done = std::move(done), created] { done(created); });
  if (has_ended) {
    finish(!created && !end_now ? MachineExit{ExitCause::start_failed, created.error().message}
                                : judge_end());
  } else if (end_now) {
    destroy();
  }
}

// On libvirt's event thread.
void GuestRun::on_event(DomainEvent event, const std::string& reason) {
  std::lock_guard lock(mutex_);
  // The first reason is the true one: libvirt then ends QEMU by a signal, which QEMU reports as well.
  if (shutdown_reason_.empty()) shutdown_reason_ = reason;
  if (event != DomainEvent::stopped) return;
  stopped_seen_ = true;
  // While it starts, the starting task learns of it by itself.
  strand_->post([self = shared_from_this()] { self->on_stopped(); });
}

void GuestRun::on_stopped() {
  if (state() != MachineState::ended) finish(judge_end());
}

MachineExit GuestRun::judge_end() const {
  EndFacts facts;
  {
    std::lock_guard lock(mutex_);
    facts.time_limit = time_limit_reached_;
    facts.stop_requested = stop_requested_;
    facts.shutdown_reason = shutdown_reason_;
  }
  if (spec_.wall_time) facts.wall_time = *spec_.wall_time;
  facts.oom_kills = count_oom_kills() - oom_kills_before_;
  facts.console_tail = last_lines(spec_.console.path, 3, 2048);
  facts.qemu_tail = last_lines(workshop_.driver->qemu_log(name_), 4, 2048);
  return exit_from(facts);
}

void GuestRun::finish(MachineExit exit) {
  if (process_watch_ >= 0) unwatch(process_watch_);
  process_watch_ = -1;
  console_.reset();
  workshop_.driver->unsubscribe(name_);
  domain_.reset();
  std::vector<Done> waiting;
  Hypervisor::OnExit on_exit;
  {
    std::lock_guard lock(mutex_);
    state_ = MachineState::ended;
    exit_ = exit;
    waiting.swap(stop_done_);
    on_exit = std::move(on_exit_);
  }
  if (on_exit) post_to_owner([on_exit = std::move(on_exit), exit] { on_exit(exit); });
  for (auto& done : waiting) post_to_owner([done = std::move(done)] { done({}); });
  ended_.notify_all();
}

void GuestRun::stop(StopMode mode, Done done) {
  bool never_started = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ != MachineState::ended) {
      if (done) stop_done_.push_back(std::exchange(done, nullptr));
      stop_requested_ = true;
      never_started = state_ == MachineState::made;
      if (state_ == MachineState::made || state_ == MachineState::running) state_ = MachineState::stopping;
    }
  }
  if (done) return post_to_owner([done = std::move(done)] { done({}); });
  if (never_started) {
    strand_->post([self = shared_from_this()] {
      self->finish({ExitCause::stopped, "it was never started"});
    });
  } else {
    request_end(mode.grace);
  }
}

void GuestRun::request_end(std::chrono::milliseconds grace) {
  // Not on the strand: a start that hangs must be ended, not waited for.
  if (grace.count() <= 0) return workshop_.pool.post([self = shared_from_this()] { self->destroy(); });
  workshop_.pool.post([self = shared_from_this()] { self->press_power_button(); });
  workshop_.timers.post_after(grace, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->request_end(std::chrono::milliseconds(0));
  });
}

void GuestRun::reach_time_limit() {
  {
    std::lock_guard lock(mutex_);
    if (state_ == MachineState::ended || stop_requested_) return;
    time_limit_reached_ = true;
    if (state_ == MachineState::running) state_ = MachineState::stopping;
  }
  request_end(std::chrono::milliseconds(0));
}

void GuestRun::press_power_button() {
  DomainHandle domain(virDomainLookupByName(workshop_.driver->connection(), name_.c_str()));
  if (domain && virDomainShutdownFlags(domain.get(), VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN) != 0)
    log_debug(last_libvirt_error("pressing the power button").message);
}

// A guest has nothing to save: its process is killed, which cannot fail or take time. Where the process is
// known libvirt is not asked: while it ends a machine by itself, every call about it waits for seconds, and
// holds up calls about others.
void GuestRun::destroy() {
  {
    std::lock_guard lock(mutex_);
    if (state_ == MachineState::ended) return;
    if (!process_)
      process_ = QemuProcess::find(workshop_.driver->pid_file(name_), workshop_.driver->folder());
    if (process_) return process_->kill();
  }
  // No such domain: it has ended, or it is not made yet and the starting task will see that it must not live.
  DomainHandle domain(virDomainLookupByName(workshop_.driver->connection(), name_.c_str()));
  if (!domain || virDomainDestroy(domain.get()) == 0) return;
  virErrorPtr last = virGetLastError();
  bool gone = last && (last->code == VIR_ERR_NO_DOMAIN || last->code == VIR_ERR_OPERATION_INVALID);
  if (gone || state() == MachineState::ended) return;
  Error error = last_libvirt_error(fmt::format("ending the machine {}", spec_.id.value()));
  std::vector<Done> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting.swap(stop_done_);
  }
  for (auto& done : waiting) post_to_owner([done = std::move(done), error] { done(fail(error)); });
}

void GuestRun::set_memory_target(ByteSize target, Done done) {
  strand_->post([self = shared_from_this(), target, done = std::move(done)] {
    Status result;
    if (!self->domain_ || self->state() != MachineState::running) {
      result = fail(ErrorCode::failed_precondition, "the machine does not run");
    } else if (target > self->spec_.memory || target < min_memory) {
      result = fail(ErrorCode::invalid_argument,
                    fmt::format("{} is not between {} and the machine's {}", to_string(target),
                                to_string(min_memory), to_string(self->spec_.memory)));
    } else if (virDomainSetMemoryFlags(self->domain_.get(), target.bytes >> 10, VIR_DOMAIN_AFFECT_LIVE) !=
               0) {
      result = fail(last_libvirt_error("setting the guest's memory"));
    }
    if (done) self->post_to_owner([done, result] { done(result); });
  });
}

void GuestRun::memory(std::function<void(Result<MemoryStatistics>)> done) {
  strand_->post([self = shared_from_this(), done = std::move(done)] {
    Result<MemoryStatistics> result = MemoryStatistics{};
    virDomainMemoryStatStruct values[VIR_DOMAIN_MEMORY_STAT_NR];
    int count = -1;
    if (!self->domain_ || self->state() != MachineState::running) {
      result = fail(ErrorCode::failed_precondition, "the machine does not run");
    } else if ((count = virDomainMemoryStats(self->domain_.get(), values, VIR_DOMAIN_MEMORY_STAT_NR, 0)) <
               0) {
      result = fail(last_libvirt_error("reading the guest's memory statistics"));
    }
    for (int i = 0; i < count; ++i) {
      auto size = ByteSize::kib(values[i].val);
      if (values[i].tag == VIR_DOMAIN_MEMORY_STAT_ACTUAL_BALLOON) result->given = size;
      if (values[i].tag == VIR_DOMAIN_MEMORY_STAT_RSS) result->resident = size;
      if (values[i].tag == VIR_DOMAIN_MEMORY_STAT_UNUSED) result->guest_unused = size;
      if (values[i].tag == VIR_DOMAIN_MEMORY_STAT_AVAILABLE) result->guest_total = size;
    }
    self->post_to_owner([done, result] { done(result); });
  });
}

void GuestRun::abandon() {
  {
    std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  stop({}, nullptr);
}

bool GuestRun::wait_until_ended(std::chrono::milliseconds limit) {
  stop({}, nullptr);
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, limit, [this] { return state_ == MachineState::ended; });
}

}  // namespace anchorhold::hypervisor
