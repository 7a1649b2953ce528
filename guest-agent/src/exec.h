// One command: its processes, its streams, its limits, and how it ended.
//
// A foreground command is over when its first process ends; what that left running is killed then, after its
// last output was given time to arrive (leftover_quiet without new bytes, leftover_limit at most). A
// background command's tree lives on until it ends by itself or is killed.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accounts.h"
#include "cgroup.h"
#include "input.h"
#include "output.h"
#include "proto/guest.pb.h"
#include "reaper.h"
#include "spawn.h"
#include "timers.h"
#include "workers.h"

namespace anchorhold::guest {

namespace wire = ::anchorhold::guest::v1;

inline constexpr std::chrono::milliseconds leftover_quiet{300};
inline constexpr std::chrono::milliseconds leftover_limit{10'000};

// What commands are made with. Outlives them.
struct Machinery {
  vsock::EventLoop& loop;
  Timers& timers;
  Workers& starters;
  Reaper& reaper;
  const GroupTree* groups;  // null: no cgroup v2; a kill then finds processes by an environment variable
  std::uint32_t default_process_limit;
  // Of every command that does not say otherwise; null: nothing more than what the contract says.
  const std::map<std::string, std::string>* environment = nullptr;
};

// What a request asks for, checked.
struct ExecPlan {
  std::string id;
  std::string command;  // for people, shortened
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::vector<std::string> candidates;
  std::string working_directory;
  Account account;
  bool feed_input = false;
  wire::ErrorMode errors = wire::ERROR_MODE_APART;
  std::optional<wire::TerminalSize> terminal;
  std::chrono::milliseconds time_limit{0};
  GroupLimits limits;
  bool background = false;
  std::size_t tail_bytes = 0;
  // Found wrong about the command itself: it is reported as not started, for this reason.
  SpawnError refused;
};

// invalid_argument for a request that breaks the contract.
Result<ExecPlan> plan_exec(const wire::ExecRequest& request, const Machinery& machinery);

// Belongs to the loop's thread.
class Exec : public std::enable_shared_from_this<Exec> {
 public:
  struct Watcher {
    std::function<void(pid_t)> started;
    std::function<void(const wire::ExecStatus&)> ended;
  };
  Exec(ExecPlan plan, const Machinery& machinery)
      : plan_(std::move(plan)),
        machinery_(machinery),
        outputs_{{machinery.loop, plan_.tail_bytes}, {machinery.loop, plan_.tail_bytes}} {}
  ~Exec();

  // Either callback may be called before this returns.
  void start(Watcher watcher);
  // Called when it has ended; at once when it has already.
  void when_ended(std::function<void(const wire::ExecStatus&)> callback);

  const std::string& id() const { return plan_.id; }
  bool background() const { return plan_.background; }
  bool ended() const { return finished_; }
  const wire::ExecStatus& status() const { return status_; }
  // Null when there is none.
  Output* output(wire::OutputStream stream);
  Input* input() { return input_.get(); }
  bool settled() const { return finished_ && outputs_[0].ended() && outputs_[1].ended() && !has_readers(); }
  bool has_readers() const { return outputs_[0].has_reader() || outputs_[1].has_reader(); }

  Status signal(int number, wire::SignalExecRequest::Scope scope);
  Status resize(const wire::TerminalSize& size);
  // The whole tree. The first cause counts.
  void kill(wire::ExecStatus::Cause cause, std::string why);
  // Its outputs are given up, too.
  void forget();
  wire::ExecInfo info() const;

 private:
  Status open_streams();
  void spawn();
  void on_spawned(SpawnResult result);
  void on_leader_end(const ChildEnd& end);
  void judge_end(const ChildEnd& end);
  void on_output();
  void wait_for_leftovers();
  void end_tree();
  void finish();
  void finish_not_started(const SpawnError& error);
  void kill_tree();
  bool tree_lives() const;
  void watch_group();
  void watch_process_limit();
  void check_process_limit();
  void notify_ended();
  std::chrono::nanoseconds run_time() const;

  ExecPlan plan_;
  Machinery machinery_;
  Watcher watcher_;
  std::vector<std::function<void(const wire::ExecStatus&)>> waiters_;

  Output outputs_[2];
  std::unique_ptr<Input> input_;
  UniqueFd controller_;  // of the terminal
  UniqueFd child_side_[3];
  ProgramSpec program_;

  std::unique_ptr<ExecGroup> group_;
  vsock::EventLoop::Watch group_watch_;
  vsock::EventLoop::Watch process_limit_watch_;
  Timers::Id process_limit_timer_ = 0;
  std::uint64_t refused_at_first_ = 0;
  unsigned strikes_ = 0;

  pid_t leader_ = -1;
  bool spawning_ = false;
  bool leader_ended_ = false;
  bool tree_ending_ = false;
  bool finished_ = false;
  std::chrono::steady_clock::time_point started_{};
  std::chrono::steady_clock::time_point leader_end_time_{};
  Timers::Id time_limit_timer_ = 0;
  Timers::Id leftover_timer_ = 0;
  Timers::Id end_timer_ = 0;
  std::optional<wire::ExecStatus::Cause> kill_cause_;
  std::string kill_reason_;
  wire::ExecStatus status_;
};

}  // namespace anchorhold::guest
