// A task with everything faked around the real loop and the real store.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "agent/task.h"
#include "agent/task_store.h"
#include "base/files.h"
#include "events/event.h"
#include "fakes/agent_files.h"
#include "fakes/agent_workspace.h"
#include "scripted.h"

namespace anchorhold::agent {

class RecordedTask : public TaskObserver {
 public:
  void text(std::string_view delta) override { said += delta; }
  void turn_restarted(std::string_view reason, std::chrono::milliseconds) override {
    restarts.emplace_back(reason);
  }
  void plan(const std::vector<PlanItem>& items) override { plans.push_back(items); }
  void tool_began(const ToolCall& call) override { began.push_back(call); }
  void tool_output(const ToolCall&, OutputStream stream, std::string_view bytes) override {
    (stream == OutputStream::out ? out : err) += bytes;
  }
  void tool_ended(const ToolCall&, const ToolOutcome& outcome) override { outcomes.push_back(outcome); }
  void output(const Output& output) override { outputs.push_back(output); }
  void notice(std::string_view text) override { notices.emplace_back(text); }
  void ended(const TaskOutcome& outcome) override { ends.push_back(outcome); }

  std::string said, out, err;
  std::vector<std::string> restarts, notices;
  std::vector<std::vector<PlanItem>> plans;
  std::vector<ToolCall> began;
  std::vector<ToolOutcome> outcomes;
  std::vector<Output> outputs;
  std::vector<TaskOutcome> ends;
};

class RecordedEvents : public events::EventSink {
 public:
  Status record(events::Event event) override {
    if (broken) return fail(ErrorCode::resource_exhausted, "the disk is full");
    recorded.push_back(std::move(event));
    return {};
  }
  bool broken = false;
  std::vector<events::Event> recorded;
};

// Gives the turns it was made with, in order, whatever it is told; keeps what it was told.
class FixedProvider : public Provider {
 public:
  explicit FixedProvider(std::vector<Result<Turn>> turns) : turns_(std::move(turns)) {}
  Result<Turn> stream(const TurnRequest& request, TurnObserver& observer, std::stop_token stop) override {
    requests.push_back(request);
    if (on_stream) on_stream();
    if (stop.stop_requested()) return fail(ErrorCode::cancelled, "stopped");
    if (next_ == turns_.size()) return fail(ErrorCode::internal, "no more turns");
    auto turn = turns_[next_++];
    if (turn) {
      for (const auto& block : turn->blocks) {
        if (const auto* text = std::get_if<TextBlock>(&block)) observer.text_delta(text->text);
        if (const auto* use = std::get_if<ToolUseBlock>(&block)) observer.tool_use_began(use->name);
      }
    }
    return turn;
  }
  ModelLimits limits() const override { return model_limits; }
  std::string name() const override { return "fixed"; }
  std::string model() const override { return "fixed-1"; }

  ModelLimits model_limits{100'000, 4'000};
  std::vector<TurnRequest> requests;
  std::function<void()> on_stream;

 private:
  std::vector<Result<Turn>> turns_;
  std::size_t next_ = 0;
};

inline Turn text_turn(std::string text, StopReason reason = StopReason::end_turn) {
  return {{TextBlock{std::move(text), {}}}, reason, "", "", {100, 10, 0, 0}, "m"};
}

inline Turn tool_turn(std::vector<std::pair<std::string, std::string>> calls) {
  static int ids = 0;
  Turn turn{{}, StopReason::tool_use, "tool_use", "", {100, 10, 0, 0}, "m"};
  for (auto& [name, input] : calls)
    turn.blocks.push_back(ToolUseBlock{"id" + std::to_string(++ids), name, input, false});
  return turn;
}

class LoopTest : public testing::Test {
 protected:
  LoopTest()
      : directory_(*TemporaryDirectory::create()), store_(*TaskStore::open(directory_.path() / "tasks")) {
    files_.grant("/mnt/report", FolderMode::read_write);
    files_.grant("/mnt/source", FolderMode::read_only);
    spec_.prompt = "Make the report";
    spec_.provider.model = "fixed:1";
    spec_.grants.folders = {{"/home/a/report", "/mnt/report", FolderMode::read_write},
                            {"/home/a/source", "/mnt/source", FolderMode::read_only}};
  }

  StoredTask& make_task() {
    auto task = store_.create(spec_, clock_);
    EXPECT_TRUE(task) << task.error().message;
    task_.emplace(std::move(*task));
    return *task_;
  }

  TaskOutcome run(Provider& provider, std::stop_token stop = {}) {
    if (!task_) make_task();
    TaskParts parts{provider, workspace_, files_,   observer_, clock_,
                    timer_,   ask_user_,  warm_up_, &events_,  web_};
    auto outcome = run_task(*task_, parts, std::move(stop));
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? *outcome : TaskOutcome{TaskEnd::failed, "", "", "", {}, {}, 0};
  }

  // Runs one call and returns what the model was told.
  ToolOutcome call(std::string name, std::string input) {
    FixedProvider provider({tool_turn({{std::move(name), std::move(input)}}), text_turn("done")});
    task_.reset();
    run(provider);
    EXPECT_FALSE(observer_.outcomes.empty());
    return observer_.outcomes.empty() ? ToolOutcome{} : observer_.outcomes.back();
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
  ManualExecutor timer_{clock_};
  TaskStore store_;
  std::optional<StoredTask> task_;
  TaskSpec spec_;
  fakes::FakeWorkspace workspace_;
  fakes::FakeFiles files_;
  RecordedTask observer_;
  RecordedEvents events_;
  AskUser ask_user_;
  WarmUp warm_up_ = WarmUp::at_first_sign;
  WebAccess* web_ = nullptr;
};

}  // namespace anchorhold::agent
