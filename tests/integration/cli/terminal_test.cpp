// anchorhold run --tty, on a terminal of the test's own.
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"
#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

class TerminalTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ANCHORHOLD_NEEDS_IMAGE();
  }
  void TearDown() override {
    terminal_.reset();
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    CliTest::TearDown();
  }

  void start_on_terminal(const std::string& script, const std::vector<std::string>& options = {}) {
    winsize size{};
    size.ws_row = 31;
    size.ws_col = 117;
    std::vector<std::string> argv{program(), "run", "--image", image_, "--tty"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--", "sh", "-c", script});
    std::vector<std::string> variables = environment({{"TERM", "xterm"}});
    std::vector<char*> words, values;
    for (auto& word : argv) words.push_back(word.data());
    for (auto& value : variables) values.push_back(value.data());
    words.push_back(nullptr);
    values.push_back(nullptr);
    int terminal = -1;
    pid_ = forkpty(&terminal, nullptr, nullptr, &size);
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      execve(words[0], words.data(), values.data());
      _exit(126);
    }
    terminal_.reset(terminal);
  }

  void wait_for(std::string_view text) {
    while (seen_.find(text) == std::string::npos) {
      pollfd waited{terminal_.get(), POLLIN, 0};
      ASSERT_GT(poll(&waited, 1, static_cast<int>(patience.count())), 0)
          << "waiting for '" << text << "' after: " << seen_;
      char buffer[4096];
      ssize_t got = read(terminal_.get(), buffer, sizeof buffer);
      ASSERT_GT(got, 0) << "ended before '" << text << "': " << seen_;
      seen_.append(buffer, static_cast<std::size_t>(got));
    }
    seen_.erase(0, seen_.find(text) + text.size());
  }

  void type(std::string_view keys) {
    ASSERT_TRUE(write_all(terminal_.get(), std::as_bytes(std::span(keys.data(), keys.size()))));
  }

  int status() {
    char buffer[4096];
    while (read(terminal_.get(), buffer, sizeof buffer) > 0) {
    }
    int status = 0;
    EXPECT_EQ(waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  UniqueFd terminal_;
  pid_t pid_ = -1;
  std::string seen_;
};

TEST_F(TerminalTest, TheCommandHasATerminalOfTheRightSizeAndKeysReachIt) {
  start_on_terminal(
      "test -t 0 && test -t 1 && stty size; read line; echo \"read <$line>\";"
      // Short sleeps: the key may come before the shell has started the next one, which then hears nothing.
      "trap 'echo interrupted; heard=1' INT; echo waiting; until test \"$heard\"; do sleep 0.1; done;"
      "echo after; cat; echo end of input; exit 5");
  wait_for("31 117\r\n");
  type("hello\r");
  wait_for("read <hello>");
  wait_for("waiting");
  type("\x03");
  wait_for("interrupted");
  wait_for("after");
  type("\x04");
  wait_for("end of input");
  EXPECT_EQ(status(), 5);
}

TEST_F(TerminalTest, TheCommandFollowsTheSizeOfTheWindow) {
  start_on_terminal("trap 'stty size; exit 6' WINCH; echo ready; while :; do sleep 0.1; done");
  wait_for("ready");
  winsize size{};
  size.ws_row = 44;
  size.ws_col = 99;
  ASSERT_EQ(ioctl(terminal_.get(), TIOCSWINSZ, &size), 0);
  wait_for("44 99\r\n");
  EXPECT_EQ(status(), 6);
}

// The command has the terminal in its own way, and gives it back for the question.
TEST_F(TerminalTest, APersonIsAskedBeforeOldThingsGoInBulk) {
  auto folder = TemporaryDirectory::create("anchorhold-terminal-test");
  ASSERT_TRUE(folder);
  auto granted = folder->path() / "papers";
  std::filesystem::create_directory(granted);
  for (int i = 0; i < 9; ++i) std::ofstream(granted / ("paper" + std::to_string(i))) << "old";
  start_on_terminal(
      "cd /mnt/papers; for i in 0 1 2 3 4 5 6 7 8; do rm -f paper$i || break; done; echo done; read line; "
      "echo \"read <$line>\"",
      {"--rw", granted.string(), "--bulk-limit", "3"});
  wait_for("Allow it?");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(granted), {}), 6);
  // From elsewhere, which the terminal is told.
  auto pending = objects(run({"egress", "pending", "--json"}).out);
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending[0].at("kind"), "bulk_change");
  std::string question = pending[0].at("question");
  EXPECT_EQ(run({"egress", "answer", question, "always"}).status, 125) << "no answer to such a question";
  EXPECT_EQ(run({"egress", "answer", question, "once"}).status, 0);
  wait_for("allowed once (by another program)");
  wait_for("Allow it?");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(granted), {}), 3);
  question = objects(run({"egress", "pending", "--json"}).out).at(0).at("question");
  type("n\r");
  wait_for("refused");
  auto late = run({"egress", "answer", question, "once"});
  EXPECT_EQ(late.status, 125);
  EXPECT_NE(late.err.find("deny, on the terminal"), std::string::npos) << late.err;
  wait_for("done");
  type("hello\r");
  wait_for("read <hello>");
  EXPECT_EQ(status(), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(granted), {}), 3);
}

}  // namespace
}  // namespace anchorhold::cli
