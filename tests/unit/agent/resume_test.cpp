// A host that is killed at any moment: the task goes on where it was, and no tool call runs twice.
#include <csignal>
#include <fstream>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

#include "loop_fixture.h"

namespace anchorhold::agent {
namespace {

using testing::HasSubstr;

// Counts the moments at which it is asked anything, and kills the process at the chosen one.
class Fuse {
 public:
  explicit Fuse(int moments) : left_(moments) {}
  void moment() {
    if (left_ > 0 && --left_ == 0) kill(getpid(), SIGKILL);
  }

 private:
  int left_;
};

// The clock is read inside every transaction and between all steps.
class FusedClock : public Clock {
 public:
  explicit FusedClock(Fuse& fuse) : fuse_(fuse) {}
  WallTime wall() const override {
    fuse_.moment();
    return clock_.wall();
  }
  MonotonicTime monotonic() const override {
    fuse_.moment();
    return clock_.monotonic();
  }

 private:
  Fuse& fuse_;
  SystemClock clock_;
};

class FusedObserver : public TaskObserver {
 public:
  explicit FusedObserver(Fuse& fuse) : fuse_(fuse) {}
  void turn_began(std::uint32_t) override { fuse_.moment(); }
  void text(std::string_view) override { fuse_.moment(); }
  void turn_ended(const Turn&) override { fuse_.moment(); }
  void tool_began(const ToolCall&) override { fuse_.moment(); }
  void tool_output(const ToolCall&, OutputStream, std::string_view) override { fuse_.moment(); }
  void tool_ended(const ToolCall&, const ToolOutcome&) override { fuse_.moment(); }
  void usage(const Usage&, std::uint32_t) override { fuse_.moment(); }
  void ended(const TaskOutcome&) override { fuse_.moment(); }

 private:
  Fuse& fuse_;
};

class FusedEvents : public events::EventSink {
 public:
  explicit FusedEvents(Fuse& fuse) : fuse_(fuse) {}
  Status record(events::Event) override {
    fuse_.moment();
    return {};
  }

 private:
  Fuse& fuse_;
};

constexpr std::string_view three_turns = R"({"turns":[
  {"content":[{"type":"text","text":"first"},
              {"type":"tool_use","name":"shell","input":{"command":"print a"}},
              {"type":"tool_use","name":"shell","input":{"command":"print b"}}]},
  {"content":[{"type":"tool_use","name":"shell","input":{"command":"print c"}},
              {"type":"tool_use","name":"plan","input":{"items":[{"text":"one"}]}}]},
  {"content":[{"type":"text","text":"the end"}]}]})";

constexpr int ran_to_the_end = 7;

class ResumeTest : public testing::Test {
 protected:
  ResumeTest() : directory_(*TemporaryDirectory::create()) {}

  TaskId make_task() {
    auto store = TaskStore::open(directory_.path() / "tasks");
    TaskSpec spec;
    spec.prompt = "go";
    spec.provider.model = "scripted";
    return store->create(spec, clock_)->id();
  }

  // In a process of its own; the exit status, or -1 when it was killed.
  int run_with_fuse(const TaskId& id, int moments) {
    pid_t child = fork();
    if (child == 0) _exit(run_here(id, moments));
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  int run_here(const TaskId& id, int moments) {
    Fuse fuse(moments);
    FusedClock clock(fuse);
    FusedObserver observer(fuse);
    FusedEvents events(fuse);
    FakeClock timer_clock;
    ManualExecutor timer(timer_clock);
    fakes::FakeWorkspace workspace(journal());
    fakes::FakeFiles files;
    auto provider = ScriptedProvider::parse(three_turns, "test");
    auto store = TaskStore::open(directory_.path() / "tasks");
    if (!provider || !store) return 1;
    auto task = store->open_task(id, clock);
    if (!task) return 2;
    TaskParts parts{**provider, workspace, files, observer, clock, timer, {}, WarmUp::at_first_sign, &events};
    auto outcome = run_task(*task, parts, {});
    return outcome && outcome->end == TaskEnd::completed ? ran_to_the_end : 3;
  }

  std::filesystem::path journal() const { return directory_.path() / "journal"; }

  std::map<std::string, int> times_run() const {
    std::map<std::string, int> times;
    std::ifstream file(journal());
    for (std::string line; std::getline(file, line);) ++times[line];
    return times;
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
};

TEST_F(ResumeTest, killed_at_every_moment_it_resumes_and_runs_nothing_twice) {
  int killed = 0;
  for (int moment = 1;; ++moment) {
    std::filesystem::remove(journal());
    TaskId id = make_task();
    int status = run_with_fuse(id, moment);
    bool was_killed = status == -1;
    killed += was_killed;
    if (was_killed) {
      ASSERT_EQ(run_with_fuse(id, 0), ran_to_the_end) << "after a kill at moment " << moment;
    } else {
      ASSERT_EQ(status, ran_to_the_end);
    }
    auto times = times_run();
    SystemClock clock;
    auto task = TaskStore::open(directory_.path() / "tasks")->open_task(id, clock);
    ASSERT_TRUE(task);
    int interrupted = 0;
    auto calls = task->calls();
    ASSERT_EQ(calls->size(), 4u) << moment;
    for (const auto& stored : *calls) {
      if (stored.state == StoredCall::State::interrupted) {
        ++interrupted;
        EXPECT_THAT(stored.outcome.text, HasSubstr("not run again"));
      } else {
        EXPECT_EQ(stored.state, StoredCall::State::done);
      }
    }
    EXPECT_LE(interrupted, 1) << moment;
    for (const char* command : {"print a", "print b", "print c"}) {
      EXPECT_LE(times[command], 1) << command << " ran twice after a kill at moment " << moment;
      if (interrupted == 0) {
        EXPECT_EQ(times[command], 1) << command << " never ran, kill at moment " << moment;
      }
    }
    EXPECT_EQ(task->messages()->size(), 6u) << moment;
    EXPECT_EQ(task->summary()->state, TaskState::completed);
    if (!was_killed) break;
  }
  EXPECT_GT(killed, 40);
}

TEST_F(ResumeTest, killed_again_and_again_it_still_comes_to_its_end) {
  TaskId id = make_task();
  int status = -1;
  int tries = 0;
  // Each try gets a little further than the one before.
  while (status == -1 && tries < 200) status = run_with_fuse(id, 4 + tries++);
  EXPECT_EQ(status, ran_to_the_end);
  for (const auto& [command, times] : times_run()) EXPECT_EQ(times, 1) << command;
}

TEST_F(ResumeTest, a_killed_task_is_ready_and_a_running_one_is_locked) {
  TaskId id = make_task();
  auto store = TaskStore::open(directory_.path() / "tasks");
  ASSERT_EQ(run_with_fuse(id, 6), -1);
  EXPECT_EQ(store->summary(id)->state, TaskState::ready);
  auto held = store->open_task(id, clock_);
  ASSERT_TRUE(held);
  EXPECT_EQ(store->summary(id)->state, TaskState::running);
  auto second = store->open_task(id, clock_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  EXPECT_EQ(store->remove(id).error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace anchorhold::agent
