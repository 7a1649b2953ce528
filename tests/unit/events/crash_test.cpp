// Writers that are killed at any moment, and several writers at once.
#include <random>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/fd.h"
#include "log_fixture.h"

namespace anchorhold::events {
namespace {

class CrashTest : public LogTest {
 protected:
  // A process that records for ever, mixing durabilities, and says on the pipe after each record which one it
  // was.
  pid_t start_writer(int writer, int acknowledged_fd) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    auto log = EventLog::open({.folder = folder()});
    if (!log) _exit(1);
    for (std::int64_t number = 0;; ++number) {
      Event event(number % 3 == 0 ? exec_start : exec_end);
      event.set("writer", writer)
          .set("number", number)
          .set("padding", std::string(static_cast<std::size_t>(number % 700), 'p'));
      if (!(*log)->record(event)) _exit(2);
      if (write(acknowledged_fd, &number, sizeof number) != sizeof number) _exit(3);
    }
  }

  std::int64_t read_acknowledgement(int fd) {
    std::int64_t number = -1;
    EXPECT_EQ(*read_full(fd, std::as_writable_bytes(std::span(&number, 1))), sizeof number);
    return number;
  }

  // The numbers recorded by a writer, which must be 0, 1, 2 … in this order; returns how many.
  std::int64_t count_of(int writer) {
    std::int64_t count = 0;
    for (const auto& record : records()) {
      if (record.attributes.at("writer") != Value(std::int64_t{writer})) continue;
      EXPECT_EQ(record.attributes.at("number"), Value(count));
      ++count;
    }
    return count;
  }
};

TEST_F(CrashTest, KilledWritersLoseNothingThatWasAcknowledged) {
  std::mt19937 random(20261129);
  for (int round = 0; round < 25; ++round) {
    Pipe pipe = *make_pipe();
    pid_t pid = start_writer(round, pipe.write_end.get());
    ASSERT_GT(pid, 0);
    const std::int64_t kill_after = 1 + static_cast<std::int64_t>(random() % 40);
    std::int64_t acknowledged = -1;
    while (acknowledged < kill_after) acknowledged = read_acknowledgement(pipe.read_end.get());
    // Anywhere within the writing of a record, not only just after one.
    const auto moment = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 400);
    while (std::chrono::steady_clock::now() < moment) {
    }
    kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    pipe.write_end.reset();
    std::int64_t number = 0;
    while (*read_full(pipe.read_end.get(), std::as_writable_bytes(std::span(&number, 1))) == sizeof number)
      acknowledged = number;
    EXPECT_GT(count_of(round), acknowledged);
    auto verification = verified();
    EXPECT_TRUE(verification.findings.empty()) << verification.findings[0].message;
  }
}

TEST_F(CrashTest, WritersOfSeveralProcessesAndThreadsShareOneChain) {
  Pipe pipes[2] = {*make_pipe(), *make_pipe()};
  pid_t writers[2];
  for (int i = 0; i < 2; ++i) writers[i] = start_writer(i, pipes[i].write_end.get());
  auto log = open_log();
  constexpr std::int64_t each = 100;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::int64_t number = 0; number < each; ++number)
        EXPECT_TRUE(log->record(Event(vm_start).set("writer", 10 + thread).set("number", number)));
    });
  }
  for (auto& thread : threads) thread.join();
  std::int64_t acknowledged[2];
  for (int i = 0; i < 2; ++i) {
    do {
      acknowledged[i] = read_acknowledgement(pipes[i].read_end.get());
    } while (acknowledged[i] < 20);
    kill(writers[i], SIGKILL);
    waitpid(writers[i], nullptr, 0);
  }
  EXPECT_EQ(count_of(10), each);
  EXPECT_EQ(count_of(11), each);
  for (int i = 0; i < 2; ++i) EXPECT_GT(count_of(i), acknowledged[i]);
  auto verification = verified();
  EXPECT_TRUE(verification.findings.empty()) << verification.findings[0].message;
  EXPECT_EQ(verification.records, records().size());
}

}  // namespace
}  // namespace anchorhold::events
