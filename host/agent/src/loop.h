// One run of a task: from where it stands to its end. See agent/task.h.
#pragma once

#include <atomic>
#include <memory>

#include "agent/task.h"
#include "context.h"
#include "progress.h"
#include "tool.h"

namespace anchorhold::agent {

// Asked to stop by the person, or by the clock. Shared with the timer, which may fire after the run is over.
struct StopSwitch {
  std::stop_source source;
  std::atomic<bool> time_up = false;
};

class TaskRun {
 public:
  TaskRun(StoredTask::Progress& store, const TaskParts& parts);
  // Nothing: the store failed, see the Error.
  Result<TaskOutcome> run(std::stop_token stop);

 private:
  // Nothing: go on.
  using Step = Result<std::optional<TaskOutcome>>;

  Result<TaskOutcome> steps();
  Step check_limits();
  Step ask_model();
  Step keep_turn(const TurnRequest& request, Turn turn);
  Step act_on_last_message();
  Step finish(StopReason reason);
  Step run_calls(std::vector<StoredCall>& calls);
  Step run_call(StoredCall& stored);
  ToolOutcome carry_out(const ToolCall& call, const Tool* tool, ToolContext& context);
  Status record_call(const ToolCall& call);
  void record_result(const ToolCall& call, const ToolOutcome& outcome);
  void record_turn(const Turn& turn);
  std::vector<ToolCall> calls_of(const Turn& turn) const;
  Step go_on_after_full_window();
  Status spend_time();
  TaskOutcome outcome(TaskEnd end, std::string reason, std::string hint = {}) const;
  TaskOutcome interrupted_outcome() const;
  std::string last_answer() const;
  void start_timer();
  void kill_jobs();

  StoredTask::Progress& store_;
  const TaskParts& parts_;
  ToolSet tools_ = built_in_tools();
  std::shared_ptr<StopSwitch> switch_ = std::make_shared<StopSwitch>();
  std::vector<Message> messages_;
  StoredTask::Progress::Totals totals_;
  TokenEstimate estimate_;
  RunningJobs jobs_;
  MonotonicTime last_spent_;
  unsigned cut_off_in_a_row_ = 0;
};

}  // namespace anchorhold::agent
