#include "loop.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "text.h"

namespace anchorhold::agent {
namespace {

constexpr std::string_view interrupted_text =
    "interrupted: Anchorhold was stopped while this call ran. It may have done none, some or all of its "
    "work, and it was not "
    "run again. Check before you repeat it.";
constexpr std::string_view go_on_text =
    "Your last message was cut off because it was too long. Go on from there, in shorter steps.";
constexpr unsigned max_cut_off_in_a_row = 5;

// Passes on what arrives, and starts the guest when the model names the tool that needs it.
class TurnRelay : public TurnObserver {
 public:
  TurnRelay(TaskObserver& observer, Workspace& workspace) : observer_(observer), workspace_(workspace) {}
  void text_delta(std::string_view text) override { observer_.text(text); }
  void thinking_delta(std::string_view text) override { observer_.thinking(text); }
  void tool_use_began(std::string_view name) override {
    if (name == "shell") workspace_.warm_up();
  }
  void restarted(std::string_view reason, std::chrono::milliseconds delay) override {
    observer_.turn_restarted(reason, delay);
  }

 private:
  TaskObserver& observer_;
  Workspace& workspace_;
};

// A turn that was cut in the middle of a tool call: whatever its arguments look like, they are not all there.
void mark_cut_call(Turn& turn) {
  if (turn.stop_reason != StopReason::max_tokens || turn.blocks.empty()) return;
  if (auto* use = std::get_if<ToolUseBlock>(&turn.blocks.back())) use->malformed = true;
}

}  // namespace

TaskRun::TaskRun(StoredTask::Progress& store, const TaskParts& parts)
    : store_(store), parts_(parts), last_spent_(parts.clock.monotonic()) {}

Result<TaskOutcome> TaskRun::run(std::stop_token stop) {
  std::stop_callback forward(stop, [flag = switch_] { flag->source.request_stop(); });
  ANCHORHOLD_CHECK(store_.begin(interrupted_text));
  messages_ = ANCHORHOLD_TRY(store_.messages());
  totals_ = ANCHORHOLD_TRY(store_.totals());
  start_timer();
  if (parts_.warm_up == WarmUp::at_start) parts_.workspace.warm_up();
  TaskOutcome end = ANCHORHOLD_TRY(steps());
  kill_jobs();
  ANCHORHOLD_CHECK(spend_time());
  end.outputs = ANCHORHOLD_TRY(store_.summary()).outputs;
  end.usage = totals_.usage;
  end.turns = totals_.turns;
  ANCHORHOLD_CHECK(store_.end(end));
  parts_.observer.ended(end);
  return end;
}

Result<TaskOutcome> TaskRun::steps() {
  for (;;) {
    if (messages_.empty()) return fail(ErrorCode::data_loss, "the task has no prompt");
    bool model_spoke = messages_.back().role == Role::assistant;
    Step step = model_spoke ? act_on_last_message() : ask_model();
    auto end = ANCHORHOLD_TRY(std::move(step));
    if (end) return std::move(*end);
  }
}

void TaskRun::start_timer() {
  auto limit = store_.spec().limits.wall_time;
  if (limit.count() <= 0) return;
  auto left = std::max(limit - totals_.active, std::chrono::milliseconds(0));
  parts_.timer.post_after(left, [weak = std::weak_ptr(switch_)] {
    if (auto flag = weak.lock()) {
      flag->time_up = true;
      flag->source.request_stop();
    }
  });
}

TaskRun::Step TaskRun::check_limits() {
  if (switch_->source.stop_requested()) return interrupted_outcome();
  const Limits& limits = store_.spec().limits;
  if (totals_.turns >= limits.turns)
    return outcome(TaskEnd::limit,
                   fmt::format("the limit of {} is reached", counted(limits.turns, "turn", "turns")));
  if (limits.tokens > 0 && totals_.usage.total() >= limits.tokens)
    return outcome(TaskEnd::limit, fmt::format("the limit of {} tokens is reached", grouped(limits.tokens)));
  if (limits.wall_time.count() > 0 && totals_.active >= limits.wall_time)
    return outcome(TaskEnd::limit,
                   fmt::format("the time limit of {} is reached", anchorhold::to_string(limits.wall_time)));
  return std::nullopt;
}

TaskRun::Step TaskRun::ask_model() {
  if (auto end = ANCHORHOLD_TRY(check_limits())) return end;
  // A turn that only paused goes on as it is; the news can wait for the next.
  if (messages_.back().role == Role::user)
    if (auto news = ANCHORHOLD_TRY(store_.take_new_folders())) messages_.push_back(std::move(*news));
  TurnRequest whole;
  whole.system = system_prompt(store_.spec().grants, parts_.web ? parts_.web->reach() : NetworkReach{},
                               store_.spec().limits, static_cast<bool>(parts_.ask_user));
  whole.messages = messages_;
  for (const auto& tool : tools_) whole.tools.push_back(tool->spec());
  auto fitting = fit(whole, totals_.shortened_through, input_budget(parts_.provider.limits()), estimate_);
  if (!fitting)
    return outcome(TaskEnd::failed, "the conversation no longer fits the model's window",
                   "Use a model with a larger window, or split the task.");
  if (fitting->through > totals_.shortened_through) {
    parts_.observer.notice(
        fmt::format("Older tool results are shortened for the model, up to call {}, to fit its window.",
                    fitting->through));
    ANCHORHOLD_CHECK(store_.set_shortened_through(fitting->through));
    totals_.shortened_through = fitting->through;
  }
  parts_.observer.turn_began(totals_.turns + 1);
  TurnRelay relay(parts_.observer, parts_.workspace);
  auto turn = parts_.provider.stream(fitting->request, relay, switch_->source.get_token());
  ANCHORHOLD_CHECK(spend_time());
  if (!turn) {
    if (switch_->source.stop_requested()) return interrupted_outcome();
    return outcome(TaskEnd::failed, turn.error().message, turn.error().hint);
  }
  return keep_turn(fitting->request, std::move(*turn));
}

TaskRun::Step TaskRun::keep_turn(const TurnRequest& request, Turn turn) {
  record_turn(turn);
  parts_.observer.turn_ended(turn);
  if (turn.stop_reason == StopReason::script_end) return outcome(TaskEnd::completed, "");
  totals_.usage += turn.usage;
  ++totals_.turns;
  parts_.observer.usage(totals_.usage, totals_.turns);
  estimate_.correct(request,
                    turn.usage.input_tokens + turn.usage.cache_read_tokens + turn.usage.cache_write_tokens);
  if (turn.stop_reason == StopReason::refusal || turn.stop_reason == StopReason::context_exceeded) {
    ANCHORHOLD_CHECK(store_.add_usage(turn.usage));
    if (turn.stop_reason == StopReason::context_exceeded) return go_on_after_full_window();
    std::string why = turn.stop_detail.empty() ? std::string() : ": " + turn.stop_detail;
    return outcome(TaskEnd::failed, "the model refused to go on with this task" + why,
                   "Word the task differently, or use another model.");
  }
  mark_cut_call(turn);
  cut_off_in_a_row_ = turn.stop_reason == StopReason::max_tokens ? cut_off_in_a_row_ + 1 : 0;
  auto calls = calls_of(turn);
  ANCHORHOLD_CHECK(store_.append_turn(turn, calls));
  messages_.push_back({Role::assistant, std::move(turn.blocks)});
  return std::nullopt;
}

// The model's own count is what decides; our estimate was too low. Everything but the newest results goes.
TaskRun::Step TaskRun::go_on_after_full_window() {
  std::uint64_t all = count_calls(messages_);
  if (totals_.shortened_through >= all)
    return outcome(TaskEnd::failed, "the conversation no longer fits the model's window",
                   "Use a model with a larger window, or split the task.");
  std::uint64_t newest = messages_.back().blocks.size();
  std::uint64_t through = all > newest && all - newest > totals_.shortened_through ? all - newest : all;
  parts_.observer.notice(
      "The model's window is full: tool results are shortened and the model is asked again.");
  ANCHORHOLD_CHECK(store_.set_shortened_through(through));
  totals_.shortened_through = through;
  return std::nullopt;
}

std::vector<ToolCall> TaskRun::calls_of(const Turn& turn) const {
  std::vector<ToolCall> calls;
  for (const Block& block : turn.blocks) {
    const auto* use = std::get_if<ToolUseBlock>(&block);
    if (!use) continue;
    ToolCall call{0, use->id, use->name, use->input, use->name};
    const Tool* tool = find_tool(tools_, use->name);
    auto input = parse_json(use->input);
    if (tool && input && input->is_object())
      call.summary = fmt::format("{}: {}", use->name, tool->describe(*input));
    calls.push_back(std::move(call));
  }
  return calls;
}

TaskRun::Step TaskRun::act_on_last_message() {
  auto calls = ANCHORHOLD_TRY(store_.open_calls());
  if (!calls.empty()) return run_calls(calls);
  return finish(ANCHORHOLD_TRY(store_.last_stop_reason()));
}

// The model's message holds no tool call.
TaskRun::Step TaskRun::finish(StopReason reason) {
  if (reason == StopReason::pause_turn) return ask_model();
  if (reason != StopReason::max_tokens) return outcome(TaskEnd::completed, "");
  if (cut_off_in_a_row_ >= max_cut_off_in_a_row)
    return outcome(TaskEnd::failed,
                   fmt::format("the model's message was cut off {} times in a row", cut_off_in_a_row_));
  Message message{Role::user, {TextBlock{std::string(go_on_text), {}}}};
  ANCHORHOLD_CHECK(store_.append_user(message));
  messages_.push_back(std::move(message));
  return std::nullopt;
}

Status TaskRun::spend_time() {
  auto now = parts_.clock.monotonic();
  auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_spent_);
  last_spent_ += spent;
  totals_.active += spent;
  return spent.count() > 0 ? store_.add_active_time(spent) : Status{};
}

TaskOutcome TaskRun::outcome(TaskEnd end, std::string reason, std::string hint) const {
  TaskOutcome result;
  result.end = end;
  result.reason = std::move(reason);
  result.hint = std::move(hint);
  result.answer = last_answer();
  return result;
}

TaskOutcome TaskRun::interrupted_outcome() const {
  if (switch_->time_up)
    return outcome(TaskEnd::limit, fmt::format("the time limit of {} is reached",
                                               anchorhold::to_string(store_.spec().limits.wall_time)));
  return outcome(TaskEnd::stopped, "stopped on request");
}

std::string TaskRun::last_answer() const {
  for (auto message = messages_.rbegin(); message != messages_.rend(); ++message) {
    if (message->role != Role::assistant) continue;
    if (std::string text = text_of(message->blocks); !text.empty()) return text;
  }
  return {};
}

void TaskRun::kill_jobs() {
  for (const JobId& id : jobs_) {
    if (auto killed = parts_.workspace.kill_job(id); !killed && killed.error().code != ErrorCode::not_found)
      parts_.observer.notice(
          fmt::format("The background job {} could not be ended: {}", id, killed.error().message));
  }
  jobs_.clear();
}

Result<TaskOutcome> run_task(StoredTask& task, const TaskParts& parts, std::stop_token stop) {
  return TaskRun(task.progress(), parts).run(std::move(stop));
}

}  // namespace anchorhold::agent
