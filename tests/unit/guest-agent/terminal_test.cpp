// Commands with a terminal.
#include <signal.h>

#include "agent_under_test.h"
#include "commands.h"

namespace anchorhold::session {
namespace {

ExecSpec on_terminal(std::string command) {
  ExecSpec spec = shell(std::move(command));
  spec.terminal = TerminalSize{.rows = 30, .columns = 100};
  return spec;
}

// Everything up to and with the wanted text.
std::string read_until(GuestExec& exec, std::string_view wanted) {
  std::string text;
  while (text.find(wanted) == std::string::npos) {
    auto bytes = exec.read(OutputStream::standard_output);
    EXPECT_TRUE(bytes && *bytes) << "got: " << text;
    if (!bytes || !*bytes) break;
    text += **bytes;
  }
  return text;
}

TEST(Terminal, IsOneAndHasItsSize) {
  HostedAgent agent;
  auto outcome = run(agent.client(), on_terminal("test -t 0 -a -t 1 -a -t 2 && stty size && echo $TERM >&2"));
  EXPECT_EQ(outcome.out, "30 100\r\nxterm-256color\r\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(outcome.status.ok());
}

TEST(Terminal, TheLastBytesArrive) {
  HostedAgent agent;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(run(agent.client(), on_terminal("echo first; echo last")).out, "first\r\nlast\r\n") << i;
  }
}

TEST(Terminal, ResizeIsSeen) {
  HostedAgent agent;
  auto exec =
      agent.client().start(on_terminal("trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(exec);
  read_until(**exec, "ready");
  ASSERT_TRUE((*exec)->resize({.rows = 50, .columns = 132}));
  EXPECT_NE(read_until(**exec, "132").find("50 132"), std::string::npos);
}

TEST(Terminal, ControlCInterrupts) {
  HostedAgent agent;
  auto exec = agent.client().start(on_terminal("echo ready; sleep 1000"));
  ASSERT_TRUE(exec);
  read_until(**exec, "ready");
  ASSERT_TRUE((*exec)->write_input("\x03"));
  auto status = (*exec)->wait();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->signal, SIGINT);
}

TEST(Terminal, ControlDEndsTheInput) {
  HostedAgent agent;
  auto exec = agent.client().start(on_terminal("stty -echo; echo ready; cat; echo end"));
  ASSERT_TRUE(exec);
  read_until(**exec, "ready");
  ASSERT_TRUE((*exec)->write_input("a line\n\x04"));
  EXPECT_NE(read_until(**exec, "end").find("a line"), std::string::npos);
  EXPECT_TRUE((*exec)->wait()->ok());
}

TEST(Terminal, TheEndOfTheInputIsControlD) {
  HostedAgent agent;
  for (const char* text : {"whole line\n", "half a line"}) {
    auto exec = agent.client().start(on_terminal("stty -echo; echo ready; cat; echo; echo end"));
    ASSERT_TRUE(exec);
    read_until(**exec, "ready");
    ASSERT_TRUE((*exec)->write_input(text));
    ASSERT_TRUE((*exec)->close_input());
    EXPECT_NE(read_until(**exec, "end").find("line"), std::string::npos);
    EXPECT_TRUE((*exec)->wait()->ok());
  }
}

TEST(Terminal, SignalsGoToTheForeground) {
  HostedAgent agent;
  auto exec =
      agent.client().start(on_terminal("set -m; bash -c 'echo ready; exec sleep 1000'; echo status $?"));
  ASSERT_TRUE(exec);
  read_until(**exec, "ready");
  // The foreground job, not the shell that waits for it.
  ASSERT_TRUE((*exec)->signal(SIGTERM));
  EXPECT_NE(read_until(**exec, "status").find("status"), std::string::npos);
}

TEST(Terminal, ResizeWithoutOneIsRefused) {
  HostedAgent agent;
  auto exec = agent.client().start(shell("sleep 1000"));
  ASSERT_TRUE(exec);
  auto resized = (*exec)->resize({.rows = 1, .columns = 1});
  ASSERT_FALSE(resized);
  EXPECT_EQ(resized.error().code, ErrorCode::failed_precondition);
}

}  // namespace
}  // namespace anchorhold::session
