// Ends: kills of whole trees, clients that vanish, what a command leaves running.
#include <filesystem>
#include <functional>
#include <signal.h>
#include <thread>

#include "agent_under_test.h"
#include "commands.h"

namespace anchorhold::session {
namespace {

using Cause = ExecStatus::Cause;

bool gone(pid_t pid) {
  return !std::filesystem::exists("/proc/" + std::to_string(pid));
}

// A child, a grandchild that became a daemon, and one that ignores every signal it can; prints their numbers.
const char* const family =
    "sleep 1000 & echo $!; "
    "python3 -c 'import os,sys\n"
    "if os.fork() == 0:\n"
    "  os.setsid()\n"
    "  if os.fork() == 0:\n"
    "    print(os.getpid(), flush=True)\n"
    "    os.close(1); os.close(2); os.execvp(\"sleep\", [\"sleep\", \"1000\"])\n"
    "  os._exit(0)\n"
    "os.wait()'; "
    "(trap '' TERM INT HUP; echo $BASHPID; exec sleep 1000) & "
    "wait";

std::vector<pid_t> read_pids(GuestExec& exec, std::size_t count) {
  std::string text;
  while (static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) < count) {
    auto bytes = exec.read(OutputStream::standard_output);
    EXPECT_TRUE(bytes && *bytes);
    if (!bytes || !*bytes) break;
    text += **bytes;
  }
  std::vector<pid_t> pids;
  std::istringstream lines(text);
  for (pid_t pid; lines >> pid;) pids.push_back(pid);
  EXPECT_EQ(pids.size(), count);
  for (pid_t pid : pids) EXPECT_FALSE(gone(pid));
  return pids;
}

TEST(Tree, KillTakesDaemonsToo) {
  HostedAgent agent;
  auto exec = agent.client().start(shell(family));
  ASSERT_TRUE(exec);
  auto pids = read_pids(**exec, 3);
  ASSERT_TRUE((*exec)->kill());
  auto status = (*exec)->wait();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->cause, Cause::killed);
  EXPECT_EQ(shell_exit_code(*status), 137);
  for (pid_t pid : pids) EXPECT_TRUE(eventually([&] { return gone(pid); })) << pid;
}

TEST(Tree, AStopTokenKills) {
  HostedAgent agent;
  auto exec = agent.client().start(shell(family));
  ASSERT_TRUE(exec);
  auto pids = read_pids(**exec, 3);
  std::stop_source stop;
  stop.request_stop();
  auto status = (*exec)->wait(stop.get_token());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->cause, Cause::killed);
  for (pid_t pid : pids) EXPECT_TRUE(eventually([&] { return gone(pid); })) << pid;
}

TEST(Tree, TheEndOfTheHandleKills) {
  HostedAgent agent;
  auto exec = agent.client().start(shell(family));
  ASSERT_TRUE(exec);
  auto pids = read_pids(**exec, 3);
  exec->reset();
  for (pid_t pid : pids) EXPECT_TRUE(eventually([&] { return gone(pid); })) << pid;
}

TEST(Tree, AClientThatVanishesLeavesNothingRunning) {
  HostedAgent agent;
  auto exec = agent.client().start(shell(family));
  ASSERT_TRUE(exec);
  auto pids = read_pids(**exec, 3);
  exec->reset();
  agent.drop_client();
  for (pid_t pid : pids) EXPECT_TRUE(eventually([&] { return gone(pid); })) << pid;
}

TEST(Tree, TheTimeLimitTakesTheWholeTree) {
  HostedAgent agent;
  ExecSpec spec = shell(family);
  spec.time_limit = std::chrono::seconds(2);
  auto exec = agent.client().start(spec);
  ASSERT_TRUE(exec);
  auto pids = read_pids(**exec, 3);
  EXPECT_EQ((*exec)->wait()->cause, Cause::time_limit);
  for (pid_t pid : pids) EXPECT_TRUE(eventually([&] { return gone(pid); })) << pid;
}

TEST(Tree, WhatACommandLeavesRunningEndsWithIt) {
  HostedAgent agent;
  auto exec = agent.client().start(shell("sleep 1000 & echo $!; exit 3"));
  ASSERT_TRUE(exec);
  auto pids = read_pids(**exec, 1);
  auto status = (*exec)->wait();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->cause, Cause::exited);
  EXPECT_EQ(status->code, 3);
  EXPECT_TRUE(eventually([&] { return gone(pids[0]); }));
  EXPECT_FALSE(*(*exec)->read(OutputStream::standard_output));
}

TEST(Tree, LastWordsOfALeftoverProcessArrive) {
  HostedAgent agent;
  auto outcome =
      run(agent.client(), shell("exec > >(while read line; do echo \"said: $line\"; done); echo hello"));
  EXPECT_EQ(outcome.out, "said: hello\n");
}

TEST(Tree, SignalsReachTheirScope) {
  HostedAgent agent;
  auto exec = agent.client().start(
      shell("trap 'echo caught; exit 4' USR1; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(exec);
  ASSERT_TRUE((*exec)->read(OutputStream::standard_output));
  ASSERT_TRUE((*exec)->signal(SIGUSR1, SignalScope::leader));
  auto bytes = (*exec)->read(OutputStream::standard_output);
  ASSERT_TRUE(bytes && *bytes);
  EXPECT_EQ(**bytes, "caught\n");
  EXPECT_EQ((*exec)->wait()->code, 4);
  auto late = (*exec)->signal(SIGUSR1);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::failed_precondition);
  auto wrong = agent.client().signal(ExecId("no-such"), SIGUSR1);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::not_found);
}

TEST(Tree, OrphansAreReapedAndStatusesAreNotStolen) {
  HostedAgent agent;
  for (int i = 0; i < 30; ++i) {
    auto outcome = run(agent.client(),
                       shell("for i in 1 2 3 4 5; do (sleep 0.0$i &) ; done; exit " + std::to_string(i)));
    EXPECT_EQ(outcome.status.code, i);
  }
  std::string agent_pid = std::to_string(agent.process().pid());
  EXPECT_TRUE(eventually([&] {
    return run(agent.client(), shell("ps -o stat= --ppid " + agent_pid + " | grep -c Z")).out == "0\n";
  }));
}

TEST(Lost, AnAgentThatDiesIsReportedWithItsCause) {
  GuestClientSpec spec;
  spec.lost_cause = [] { return std::string("the machine ended"); };
  HostedAgent agent(std::move(spec));
  auto exec = agent.client().start(shell("echo started; sleep 1000"));
  ASSERT_TRUE(exec);
  ASSERT_TRUE((*exec)->read(OutputStream::standard_output));
  agent.process().kill(SIGKILL);
  auto read = (*exec)->read(OutputStream::standard_output);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::unavailable);
  EXPECT_EQ(read.error().message, "guest lost: the machine ended");
  auto status = (*exec)->wait();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "guest lost: the machine ended");
  EXPECT_TRUE(agent.client().lost());
  auto again = agent.client().statistics();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, "guest lost: the machine ended");
}

TEST(Lost, ShutdownEndsTheAgentAndIsRepeatable) {
  HostedAgent agent;
  auto exec = agent.client().start(shell("trap 'echo bye' TERM; echo up; sleep 1000 & wait; exit 5"));
  ASSERT_TRUE(exec);
  ASSERT_TRUE((*exec)->read(OutputStream::standard_output));
  EXPECT_TRUE(agent.client().shutdown(std::chrono::milliseconds(300)));
  EXPECT_TRUE(agent.process().wait(std::chrono::seconds(30)));
  EXPECT_TRUE(agent.client().shutdown());
}

}  // namespace
}  // namespace anchorhold::session
