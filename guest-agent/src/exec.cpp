#include "exec.h"

#include <cerrno>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process_search.h"
#include "terminal.h"

namespace anchorhold::guest {
namespace {

constexpr std::uint32_t ready_priority =
    0x002;  // EPOLLPRI: how the kernel tells of a change in a control file
constexpr std::chrono::milliseconds tree_end_step{20};
constexpr std::chrono::milliseconds tree_end_limit{2000};

std::uint64_t nanoseconds(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_usec) * 1000;
}

}  // namespace

Exec::~Exec() {
  for (auto* timer : {&process_limit_timer_, &time_limit_timer_, &leftover_timer_, &end_timer_})
    machinery_.timers.cancel(*timer);
  if (leader_ > 0 && (!leader_ended_ || group_)) kill_tree();
}

void Exec::start(Watcher watcher) {
  watcher_ = std::move(watcher);
  started_ = std::chrono::steady_clock::now();
  if (plan_.refused.error_number != 0) return finish_not_started(plan_.refused);
  if (auto opened = open_streams(); !opened) return finish_not_started({EIO, opened.error().message});
  if (plan_.time_limit.count() > 0) {
    time_limit_timer_ = machinery_.timers.after(plan_.time_limit, [this] {
      kill(wire::ExecStatus::CAUSE_TIME_LIMIT,
           fmt::format("ran longer than {} ms", plan_.time_limit.count()));
    });
  }
  spawn();
}

// On a worker: making a group and becoming a program may both take a while, the latter as long as a share's
// host takes.
void Exec::spawn() {
  program_.argv = std::move(plan_.argv);
  program_.environment = std::move(plan_.environment);
  program_.candidates = std::move(plan_.candidates);
  program_.working_directory = plan_.working_directory;
  for (int i = 0; i < 3; ++i) program_.standard[i] = child_side_[i].get();
  program_.controlling_terminal = plan_.terminal.has_value();
  program_.change_user = geteuid() == 0;
  program_.uid = plan_.account.uid;
  program_.gid = plan_.account.gid;
  program_.groups = plan_.account.groups;
  spawning_ = true;
  machinery_.reaper.expect();
  machinery_.starters.post([self = shared_from_this()] {
    SpawnResult result;
    const auto& m = self->machinery_;
    if (m.groups != nullptr) {
      auto group = m.groups->make(self->plan_.id, self->plan_.limits);
      if (!group) {
        result.error = {EIO, group.error().message};
        m.loop.post([self, result] { self->on_spawned(result); });
        return;
      }
      self->program_.group_directory = (*group)->directory_fd();
      m.loop.post([self, shared = std::make_shared<std::unique_ptr<ExecGroup>>(std::move(*group))] {
        self->group_ = std::move(*shared);
        self->watch_group();
        if (self->kill_cause_) self->kill_tree();
      });
    }
    result = spawn_program(self->program_);
    m.loop.post([self, result] { self->on_spawned(result); });
  });
}

void Exec::on_spawned(SpawnResult result) {
  spawning_ = false;
  for (auto& side : child_side_) side.reset();
  program_ = {};
  if (result.error.error_number != 0) {
    machinery_.reaper.claim(result.pid, nullptr);
    return finish_not_started(result.error);
  }
  leader_ = result.pid;
  if (watcher_.started) watcher_.started(leader_);
  machinery_.reaper.claim(leader_, [weak = weak_from_this()](const ChildEnd& end) {
    if (auto self = weak.lock()) self->on_leader_end(end);
  });
  if (kill_cause_ && !leader_ended_) kill_tree();
}

void Exec::watch_group() {
  auto watched = machinery_.loop.watch(group_->events_fd(), ready_priority, [this](std::uint32_t) {
    if (group_->populated() || !leader_ended_) return;
    auto self = shared_from_this();
    if (!finished_) return finish();
    group_watch_ = {};
    process_limit_watch_ = {};
    group_.reset();
  });
  if (watched) group_watch_ = std::move(*watched);
  watch_process_limit();
}

void Exec::watch_process_limit() {
  if (group_->process_limit_fd() < 0) return;
  auto watched = machinery_.loop.watch(group_->process_limit_fd(), ready_priority, [this](std::uint32_t) {
    std::uint64_t refused = group_->refused_forks();
    if (process_limit_timer_ != 0 || refused == 0) return;
    refused_at_first_ = refused;
    strikes_ = 0;
    process_limit_timer_ =
        machinery_.timers.after(std::chrono::seconds(1), [this] { check_process_limit(); });
  });
  if (watched) process_limit_watch_ = std::move(*watched);
}

// Hitting the limit once is an error for the command to handle. Staying there, with forks refused again and
// again, is a fork bomb: it would never end by itself.
void Exec::check_process_limit() {
  process_limit_timer_ = 0;
  if (!group_) return;
  constexpr std::uint64_t refusals_of_a_bomb = 8;
  constexpr unsigned strikes_of_a_bomb = 2;
  bool at_limit = group_->usage().processes * 10ull >= plan_.limits.processes * 9ull;
  if (!at_limit) return;
  if (++strikes_ >= strikes_of_a_bomb && group_->refused_forks() >= refused_at_first_ + refusals_of_a_bomb)
    return kill(wire::ExecStatus::CAUSE_PROCESS_LIMIT,
                fmt::format("stayed at its limit of {} processes", plan_.limits.processes));
  process_limit_timer_ = machinery_.timers.after(std::chrono::seconds(1), [this] { check_process_limit(); });
}

void Exec::kill(wire::ExecStatus::Cause cause, std::string why) {
  if (!leader_ended_ && !kill_cause_) {
    kill_cause_ = cause;
    kill_reason_ = std::move(why);
  }
  if (finished_ && !group_ && machinery_.groups != nullptr) return;
  kill_tree();
  if (spawning_) {
    // It may be inside exec, waiting for a file system: it is born into its group, so a later kill finds it.
    machinery_.timers.cancel(end_timer_);
    end_timer_ = machinery_.timers.after(std::chrono::milliseconds(200), [this] {
      end_timer_ = 0;
      if (spawning_) kill(*kill_cause_, {});
    });
  } else if (leader_ended_ && !finished_ && !tree_ending_) {
    end_tree();
  }
}

void Exec::kill_tree() {
  if (group_) return group_->kill();
  if (machinery_.groups != nullptr) return;
  if (leader_ > 0 && !leader_ended_) {
    ::kill(-leader_, SIGKILL);
    ::kill(leader_, SIGKILL);
  }
  kill_processes_of(plan_.id);
}

bool Exec::tree_lives() const {
  if (group_) return group_->populated();
  return machinery_.groups == nullptr && !processes_of(plan_.id).empty();
}

void Exec::on_leader_end(const ChildEnd& end) {
  auto self = shared_from_this();
  leader_ended_ = true;
  leader_end_time_ = std::chrono::steady_clock::now();
  if (!plan_.background) machinery_.timers.cancel(time_limit_timer_);
  judge_end(end);
  if (plan_.background) {
    finished_ = true;
    if (!tree_lives()) {
      if (input_) input_->abandon();
      group_watch_ = {};
      process_limit_watch_ = {};
      group_.reset();
    }
    return notify_ended();
  }
  if (kill_cause_)
    end_tree();
  else
    wait_for_leftovers();
}

void Exec::judge_end(const ChildEnd& end) {
  using S = wire::ExecStatus;
  bool signalled = WIFSIGNALED(end.status);
  bool killed = signalled && WTERMSIG(end.status) == SIGKILL;
  if (signalled)
    status_.set_signal(WTERMSIG(end.status));
  else
    status_.set_exit_code(WEXITSTATUS(end.status));
  if (killed && kill_cause_) {
    status_.set_cause(*kill_cause_);
    status_.set_message(kill_reason_);
  } else if (killed && group_ && group_->out_of_memory_kills() > 0) {
    status_.set_cause(S::CAUSE_OUT_OF_MEMORY);
    status_.set_message(plan_.limits.memory_bytes > 0 ? fmt::format("needed more than its {} bytes of memory",
                                                                    plan_.limits.memory_bytes)
                                                      : std::string("needed more memory than the guest has"));
  } else {
    status_.set_cause(signalled ? S::CAUSE_SIGNALLED : S::CAUSE_EXITED);
  }
  status_.set_wall_time_ns(static_cast<std::uint64_t>((leader_end_time_ - started_).count()));
  status_.set_cpu_time_ns(nanoseconds(end.usage.ru_utime) + nanoseconds(end.usage.ru_stime));
  status_.set_peak_memory_bytes(static_cast<std::uint64_t>(end.usage.ru_maxrss) * 1024);
  if (!group_) return;
  GroupUsage usage = group_->usage();
  if (usage.cpu_time_ns > 0) status_.set_cpu_time_ns(usage.cpu_time_ns);
  if (usage.peak_memory_bytes > 0) status_.set_peak_memory_bytes(usage.peak_memory_bytes);
}

void Exec::on_output() {
  if (leader_ended_ && !tree_ending_ && !finished_) wait_for_leftovers();
}

void Exec::wait_for_leftovers() {
  if (!tree_lives()) return finish();
  bool over = (outputs_[0].ended() && outputs_[1].ended()) ||
              std::chrono::steady_clock::now() - leader_end_time_ >= leftover_limit;
  if (over) return end_tree();
  machinery_.timers.cancel(leftover_timer_);
  leftover_timer_ = machinery_.timers.after(leftover_quiet, [this] {
    leftover_timer_ = 0;
    // Bytes that a slow reader has not taken may be what a leftover process waits behind.
    if (outputs_[0].drained() && outputs_[1].drained())
      end_tree();
    else
      wait_for_leftovers();
  });
}

void Exec::end_tree() {
  tree_ending_ = true;
  auto self = shared_from_this();
  machinery_.timers.cancel(leftover_timer_);
  kill_tree();
  bool given_up = std::chrono::steady_clock::now() - leader_end_time_ >= leftover_limit + tree_end_limit;
  if (!tree_lives() || given_up) return finish();
  machinery_.timers.cancel(end_timer_);
  end_timer_ = machinery_.timers.after(tree_end_step, [this] {
    end_timer_ = 0;
    if (!finished_) end_tree();
  });
}

void Exec::finish() {
  if (finished_) return;
  finished_ = true;
  auto self = shared_from_this();
  for (auto* timer : {&process_limit_timer_, &time_limit_timer_, &leftover_timer_, &end_timer_})
    machinery_.timers.cancel(*timer);
  if (input_) input_->abandon();
  controller_.reset();
  group_watch_ = {};
  process_limit_watch_ = {};
  group_.reset();
  outputs_[0].settle();
  outputs_[1].settle();
  notify_ended();
}

void Exec::finish_not_started(const SpawnError& error) {
  status_.set_cause(wire::ExecStatus::CAUSE_NOT_STARTED);
  status_.set_errno_value(error.error_number);
  status_.set_message(error.message);
  if (kill_cause_) {
    status_.set_cause(*kill_cause_);
    status_.set_message(kill_reason_);
  }
  leader_ended_ = true;
  outputs_[0].close();
  outputs_[1].close();
  finish();
}

void Exec::notify_ended() {
  if (watcher_.ended) watcher_.ended(status_);
  watcher_ = {};
  for (auto& waiter : std::exchange(waiters_, {})) waiter(status_);
}

void Exec::when_ended(std::function<void(const wire::ExecStatus&)> callback) {
  if (finished_)
    callback(status_);
  else
    waiters_.push_back(std::move(callback));
}

Status Exec::signal(int number, wire::SignalExecRequest::Scope scope) {
  if (number < 1 || number > SIGRTMAX)
    return fail(ErrorCode::invalid_argument, fmt::format("{} is not a signal", number));
  if (leader_ <= 0)
    return fail(ErrorCode::failed_precondition, fmt::format("command {} has not started", plan_.id));
  if (scope == wire::SignalExecRequest::SCOPE_TREE || (leader_ended_ && tree_lives())) {
    if (group_) {
      group_->signal(number);
    } else {
      for (pid_t pid : processes_of(plan_.id)) ::kill(pid, number);
    }
    return {};
  }
  if (leader_ended_)
    return fail(ErrorCode::failed_precondition, fmt::format("command {} has ended", plan_.id));
  pid_t target = leader_;
  if (scope != wire::SignalExecRequest::SCOPE_LEADER) {
    pid_t group = controller_ ? foreground_group(controller_.get()) : leader_;
    target = -(group > 0 ? group : leader_);
  }
  if (::kill(target, number) != 0) return fail_errno(errno, fmt::format("signalling command {}", plan_.id));
  return {};
}

std::chrono::nanoseconds Exec::run_time() const {
  return (leader_ended_ ? leader_end_time_ : std::chrono::steady_clock::now()) - started_;
}

wire::ExecInfo Exec::info() const {
  wire::ExecInfo info;
  info.set_exec_id(plan_.id);
  info.set_command(plan_.command);
  info.set_background(plan_.background);
  info.set_running(!finished_);
  if (finished_) *info.mutable_status() = status_;
  info.set_wall_time_ns(static_cast<std::uint64_t>(run_time().count()));
  if (group_) {
    GroupUsage usage = group_->usage();
    info.set_cpu_time_ns(usage.cpu_time_ns);
    info.set_memory_bytes(usage.memory_bytes);
    info.set_processes(usage.processes);
  }
  info.set_stdout_bytes(outputs_[0].total());
  info.set_stderr_bytes(outputs_[1].total());
  if (plan_.background) {
    info.set_stdout_dropped_bytes(outputs_[0].dropped());
    info.set_stderr_dropped_bytes(outputs_[1].dropped());
  }
  return info;
}

}  // namespace anchorhold::guest
