#include "session/workspace.h"

#include <future>

#include "session_fixture.h"

namespace anchorhold::session {
namespace {

using agent::ShellEnd;

class WorkspaceTest : public SessionTest {
 protected:
  WorkspaceTest() : session_(open_session()), workspace_(*session_) {}

  ShellEnd run(const std::string& command, std::stop_token stop = {}) {
    agent::ShellCommand shell;
    shell.command = command;
    shell.working_directory = "/";
    auto end = workspace_.run(
        shell,
        [this](agent::OutputStream stream, std::string_view bytes) {
          (stream == agent::OutputStream::out ? out_ : err_) += bytes;
          return go_on_;
        },
        stop);
    EXPECT_TRUE(end) << end.error().message;
    return *end;
  }

  std::unique_ptr<Session> session_;
  SessionWorkspace workspace_;
  std::string out_, err_;
  bool go_on_ = true;
};

TEST_F(WorkspaceTest, OutputsAndEndsArrive) {
  auto end = run("echo out; echo err >&2; exit 3");
  EXPECT_EQ(end.cause, ShellEnd::Cause::exited);
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(out_, "out\n");
  EXPECT_EQ(err_, "err\n");
  EXPECT_EQ(run("kill -SEGV $$").cause, ShellEnd::Cause::signalled);
}

TEST_F(WorkspaceTest, ASinkThatWantsNoMoreKillsTheCommand) {
  go_on_ = false;
  EXPECT_EQ(run("yes").cause, ShellEnd::Cause::killed);
}

TEST_F(WorkspaceTest, AStopKillsTheCommand) {
  std::stop_source stop;
  auto ended =
      std::async(std::launch::async, [&] { return run("echo begun; sleep 1000", stop.get_token()); });
  stop.request_stop();
  EXPECT_EQ(ended.get().cause, ShellEnd::Cause::killed);
}

TEST_F(WorkspaceTest, JobsOutliveTheirCallAndAreNeverNamedTwice) {
  agent::ShellCommand command;
  command.command = "echo one; echo two >&2; sleep 1000";
  command.working_directory = "/";
  auto started = workspace_.start_job(command, {});
  ASSERT_TRUE(started) << started.error().message;
  ASSERT_FALSE(started->id.empty()) << started->end.detail;
  std::string output;
  std::uint64_t offset = 0;
  while (output.size() < 8) {
    auto state = workspace_.poll_job(started->id, offset, 1024, std::chrono::seconds(10), {});
    ASSERT_TRUE(state) << state.error().message;
    EXPECT_TRUE(state->running);
    output += state->output;
    offset = state->next_offset;
  }
  EXPECT_EQ(output, "one\ntwo\n");
  ASSERT_TRUE(workspace_.kill_job(started->id));
  for (;;) {
    auto state = workspace_.poll_job(started->id, offset, 1024, std::chrono::seconds(1), {});
    ASSERT_TRUE(state) << state.error().message;
    if (state->running) continue;
    EXPECT_EQ(state->end.cause, ShellEnd::Cause::killed);
    break;
  }
  EXPECT_EQ(workspace_.poll_job("job-none", 0, 10, {}, {}).error().code, ErrorCode::not_found);
  EXPECT_NE(workspace_.start_job(command, {})->id, started->id);
}

TEST_F(WorkspaceTest, ALostGuestIsAnEndWithItsCause) {
  auto ended = std::async(std::launch::async, [&] { return run("echo begun; sleep 1000"); });
  auto guest = session_->guest();
  ASSERT_TRUE(guest);
  fake()->end_guest((*guest)->id(), {hypervisor::ExitCause::process_lost, "killed by signal 9"});
  kill_agent();
  auto end = ended.get();
  EXPECT_TRUE(end.cause == ShellEnd::Cause::guest_lost || end.cause == ShellEnd::Cause::unavailable);
  EXPECT_NE(end.detail.find("killed by signal 9"), std::string::npos) << end.detail;
}

TEST_F(SessionTest, WithoutAGuestTheEndSaysWhyAndWhatToDo) {
  no_hypervisor_ = Error{ErrorCode::failed_precondition, "QEMU is missing", "apt-get install it"};
  auto session = open_session();
  SessionWorkspace workspace(*session);
  auto end = workspace.run({.command = "true", .working_directory = {}, .environment = {}},
                           [](agent::OutputStream, std::string_view) { return true; }, {});
  ASSERT_TRUE(end);
  EXPECT_EQ(end->cause, ShellEnd::Cause::unavailable);
  EXPECT_EQ(end->detail, "QEMU is missing; apt-get install it");
}

TEST(ShellEnds, EveryCauseHasOne) {
  using Cause = ExecStatus::Cause;
  const std::pair<Cause, ShellEnd::Cause> table[] = {
      {Cause::exited, ShellEnd::Cause::exited},
      {Cause::signalled, ShellEnd::Cause::signalled},
      {Cause::time_limit, ShellEnd::Cause::time_limit},
      {Cause::out_of_memory, ShellEnd::Cause::out_of_memory},
      {Cause::process_limit, ShellEnd::Cause::killed},
      {Cause::killed, ShellEnd::Cause::killed},
      {Cause::not_started, ShellEnd::Cause::refused},
  };
  for (auto [from, to] : table) {
    ExecStatus status;
    status.cause = from;
    status.detail = "detail";
    EXPECT_EQ(to_shell_end(status).cause, to);
    EXPECT_EQ(to_shell_end(status).detail, "detail");
  }
}

}  // namespace
}  // namespace anchorhold::session
