// Commands through the real agent: streams, status, environment, limits.
#include <signal.h>
#include <unistd.h>

#include "agent_under_test.h"
#include "commands.h"

namespace anchorhold::session {
namespace {

using Cause = ExecStatus::Cause;

TEST(Exec, KeepsTheOutputsApart) {
  HostedAgent agent;
  auto outcome = run(agent.client(), shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(outcome.out, "out\n");
  EXPECT_EQ(outcome.err, "err\n");
  EXPECT_EQ(outcome.status.cause, Cause::exited);
  EXPECT_EQ(outcome.status.code, 7);
  EXPECT_GT(outcome.status.wall_time.count(), 0);
}

TEST(Exec, FeedsTheInputAndEndsIt) {
  HostedAgent agent;
  auto outcome = run(agent.client(), program({"cat"}), "some input");
  EXPECT_EQ(outcome.out, "some input");
  EXPECT_TRUE(outcome.status.ok());
}

TEST(Exec, AnEmptyInputIsAtItsEndAtOnce) {
  HostedAgent agent;
  EXPECT_EQ(run(agent.client(), program({"wc", "-c"})).out, "0\n");
  ExecSpec piped = program({"wc", "-c"});
  piped.input = ExecSpec::Input::pipe;
  EXPECT_EQ(run(agent.client(), piped).out, "0\n");
}

TEST(Exec, CarriesEveryByteBothWays) {
  HostedAgent agent;
  std::string bytes;
  for (int i = 0; i < 70'000; ++i) bytes.push_back(static_cast<char>(i * 131 + i / 256));
  bytes += std::string("\0\xff\xfe\xc3\x28\r\n", 7);
  auto outcome = run(agent.client(), program({"cat"}), bytes);
  EXPECT_TRUE(outcome.out == bytes) << "got " << outcome.out.size() << " bytes of " << bytes.size();
}

TEST(Exec, TakesArgumentsThatAreNotText) {
  HostedAgent agent;
  auto outcome = run(agent.client(), program({"printf", "%s|%s", "a b", "\xff\xfe"}));
  EXPECT_EQ(outcome.out, "a b|\xff\xfe");
}

TEST(Exec, EnvironmentIsAddedOrReplaced) {
  HostedAgent agent;
  ExecSpec spec = shell("echo $HOME:$GREETING:$LANG");
  spec.environment = {{"GREETING", "hello"}, {"HOME", "/elsewhere"}};
  EXPECT_EQ(run(agent.client(), spec).out, "/elsewhere:hello:C.UTF-8\n");
  ExecSpec bare = program({"/usr/bin/env"});
  bare.environment = {{"ONLY", "this"}};
  bare.clear_environment = true;
  std::string seen = run(agent.client(), bare).out;
  EXPECT_EQ(seen.substr(seen.find("ONLY")), "ONLY=this\n");
  EXPECT_EQ(seen.find("PATH="), std::string::npos);
}

TEST(Exec, WorkingDirectoryIsEnteredOrNamed) {
  HostedAgent agent;
  ExecSpec spec = program({"pwd"});
  spec.working_directory = "/usr";
  EXPECT_EQ(run(agent.client(), spec).out, "/usr\n");
  spec.working_directory = "/no/such/folder";
  auto outcome = run(agent.client(), spec);
  EXPECT_EQ(outcome.status.cause, Cause::not_started);
  EXPECT_EQ(outcome.status.detail, "working directory /no/such/folder: No such file or directory");
}

TEST(Exec, NamesWhatCannotBeStarted) {
  HostedAgent agent;
  auto missing = run(agent.client(), program({"no-such-program"}));
  EXPECT_EQ(missing.status.cause, Cause::not_started);
  EXPECT_EQ(missing.status.detail, "no-such-program: command not found");
  EXPECT_EQ(shell_exit_code(missing.status), 127);
  auto folder = run(agent.client(), program({"/usr"}));
  EXPECT_EQ(folder.status.cause, Cause::not_started);
  EXPECT_EQ(shell_exit_code(folder.status), 126);
}

TEST(Exec, LeaksNoDescriptor) {
  HostedAgent agent;
  EXPECT_EQ(run(agent.client(), shell("ls /proc/self/fd | wc -l")).out, "4\n");  // 0, 1, 2, and ls's own
}

TEST(Exec, StandardStreamsCanBeOpenedAgain) {
  HostedAgent agent;
  EXPECT_EQ(run(agent.client(), shell("echo again > /dev/stdout; echo wrong > /proc/self/fd/2")).out,
            "again\n");
}

TEST(Exec, ReportsTheSignal) {
  HostedAgent agent;
  auto outcome = run(agent.client(), shell("kill -SEGV $$"));
  EXPECT_EQ(outcome.status.cause, Cause::signalled);
  EXPECT_EQ(outcome.status.signal, SIGSEGV);
  EXPECT_EQ(to_string(outcome.status), "killed by SIGSEGV");
}

TEST(Exec, MergesOrDiscardsErrors) {
  HostedAgent agent;
  ExecSpec spec = shell("echo 1; echo 2 >&2; echo 3");
  spec.errors = ExecSpec::Errors::merged;
  auto merged = run(agent.client(), spec);
  EXPECT_EQ(merged.out, "1\n2\n3\n");
  EXPECT_EQ(merged.err, "");
  spec.errors = ExecSpec::Errors::discarded;
  auto discarded = run(agent.client(), spec);
  EXPECT_EQ(discarded.out, "1\n3\n");
  EXPECT_EQ(discarded.err, "");
}

TEST(Exec, TimeLimitIsTheCause) {
  HostedAgent agent;
  ExecSpec spec = shell("sleep 1000 & sleep 1000");
  spec.time_limit = std::chrono::milliseconds(200);
  auto outcome = run(agent.client(), spec);
  EXPECT_EQ(outcome.status.cause, Cause::time_limit);
  EXPECT_EQ(shell_exit_code(outcome.status), 124);
}

TEST(Exec, RefusesArgumentsNoKernelTakes) {
  HostedAgent agent;
  auto one = run(agent.client(), program({"echo", std::string(2u << 20, 'x')}));
  EXPECT_EQ(one.status.cause, Cause::not_started);
  EXPECT_NE(one.status.detail.find("at most"), std::string::npos) << one.status.detail;
  auto long_one = run(agent.client(), program({"echo", std::string(200'000, 'x')}));
  EXPECT_EQ(long_one.status.cause, Cause::not_started);
  EXPECT_EQ(long_one.status.detail,
            "an argument of 200000 bytes is too long: one argument can have at most 131071 bytes");
  std::vector<std::string> many{"echo"};
  for (int i = 0; i < 30; ++i) many.push_back(std::string(100'000, 'x'));
  auto all = run(agent.client(), program(many));
  EXPECT_EQ(all.status.cause, Cause::not_started);
  EXPECT_NE(all.status.detail.find("at most 2097152"), std::string::npos) << all.status.detail;
  // Close to the limit is fine.
  many.resize(20);
  EXPECT_EQ(run(agent.client(), program(many)).out.size(), 19u * 100'001);
}

TEST(Exec, AnswersWrongRequestsWithAnError) {
  HostedAgent agent;
  ExecSpec none;
  auto started = agent.client().start(none);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::invalid_argument);
  ExecSpec zero = program({"echo", std::string("a\0b", 3)});
  auto exec = agent.client().start(zero);
  ASSERT_TRUE(exec);
  auto read = (*exec)->read(OutputStream::standard_output);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::invalid_argument);
  auto status = (*exec)->wait();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "a command cannot contain a zero byte");
}

TEST(Exec, RunsAsTheUnprivilegedUser) {
  HostedAgent agent;
  std::string uid = run(agent.client(), program({"id", "-u"})).out;
  EXPECT_EQ(uid, default_uid() + "\n");
  ExecSpec root = program({"id", "-u"});
  root.user = "root";
  auto outcome = run(agent.client(), root);
  if (agent_is_root)
    EXPECT_EQ(outcome.out, "0\n");
  else
    EXPECT_EQ(outcome.status.cause, Cause::not_started);
  root.user = "nobody-of-this-name";
  EXPECT_EQ(run(agent.client(), root).status.detail, "no user nobody-of-this-name in the guest");
}

TEST(Exec, IgnoredSignalsOfTheAgentAreNotInherited) {
  HostedAgent agent;
  // A shell that inherits an ignored SIGPIPE would see "write error" and exit code 1.
  auto outcome = run(agent.client(), shell("yes | head -n 1; echo ${PIPESTATUS[0]}"));
  EXPECT_EQ(outcome.out, "y\n141\n");
  EXPECT_EQ(run(agent.client(), shell("grep SigBlk /proc/self/status")).out, "SigBlk:\t0000000000000000\n");
}

TEST(Exec, ScriptsWithoutAnInterpreterLineRun) {
  HostedAgent agent;
  std::string folder =
      run(agent.client(),
          shell("f=$(mktemp -d) && echo 'echo script $1' > $f/s && chmod 755 $f/s && printf $f"))
          .out;
  EXPECT_EQ(run(agent.client(), program({folder + "/s", "argument"})).out, "script argument\n");
  run(agent.client(), program({"rm", "-r", folder}));
}

}  // namespace
}  // namespace anchorhold::session
