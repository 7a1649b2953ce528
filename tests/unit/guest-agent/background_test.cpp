// Jobs that outlive the call which started them.
#include <functional>
#include <thread>

#include "agent_under_test.h"
#include "commands.h"

namespace anchorhold::session {
namespace {

using Cause = ExecStatus::Cause;

BackgroundSpec job(std::string command, ByteSize tail = ByteSize::mib(1)) {
  BackgroundSpec spec;
  spec.exec = shell(std::move(command));
  spec.tail = tail;
  return spec;
}

// Polls until the text is there or the output ended.
std::string poll_until(GuestClient& client, const ExecId& id, std::string_view wanted,
                       std::uint64_t from = 0) {
  std::string text;
  for (;;) {
    auto output =
        client.poll_output(id, OutputStream::standard_output, from, 1u << 20, std::chrono::seconds(60));
    EXPECT_TRUE(output) << (output ? "" : output.error().message);
    if (!output) return text;
    text += output->bytes;
    from = output->next_offset;
    if (text.find(wanted) != std::string::npos || output->at_end) return text;
  }
}

TEST(Background, RunsOnAndIsPolled) {
  HostedAgent agent;
  auto start = agent.client().start_background(job("echo one; read x < /dev/null; echo two; exit 6"));
  ASSERT_TRUE(start);
  EXPECT_FALSE(start->failed);
  EXPECT_EQ(poll_until(agent.client(), start->id, "two\n"), "one\ntwo\n");
  auto status = agent.client().wait_background(start->id);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code, 6);
  // From an offset, after the end, and again.
  auto rest = agent.client().poll_output(start->id, OutputStream::standard_output, 4);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->bytes, "two\n");
  EXPECT_EQ(rest->next_offset, 8u);
  EXPECT_TRUE(rest->at_end);
  auto little = agent.client().poll_output(start->id, OutputStream::standard_output, 0, 3);
  ASSERT_TRUE(little);
  EXPECT_EQ(little->bytes, "one");
  EXPECT_EQ(little->next_offset, 3u);
}

TEST(Background, KeepsABoundedTailAndCountsTheRest) {
  HostedAgent agent;
  auto start =
      agent.client().start_background(job("head -c 10000000 /dev/zero; echo end", ByteSize::kib(64)));
  ASSERT_TRUE(start);
  ASSERT_TRUE(agent.client().wait_background(start->id));
  poll_until(agent.client(), start->id, "end");
  auto output = agent.client().poll_output(start->id, OutputStream::standard_output, 0);
  ASSERT_TRUE(output);
  EXPECT_LE(output->bytes.size(), 128u * 1024);
  EXPECT_GE(output->bytes.size(), 64u * 1024);
  EXPECT_EQ(output->dropped + output->bytes.size(), 10'000'004u);
  EXPECT_EQ(output->offset, output->dropped);
  EXPECT_EQ(output->bytes.substr(output->bytes.size() - 4), "end\n");
}

TEST(Background, IsNotHeldBackByAnybody) {
  HostedAgent agent;
  auto start = agent.client().start_background(job("head -c 50M /dev/zero; exit 9", ByteSize::kib(16)));
  ASSERT_TRUE(start);
  auto status = agent.client().wait_background(start->id);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code, 9);
}

TEST(Background, IsListedKilledAndForgotten) {
  HostedAgent agent;
  auto start = agent.client().start_background(job("echo up; sleep 1000"));
  ASSERT_TRUE(start);
  poll_until(agent.client(), start->id, "up");
  auto execs = agent.client().list_execs();
  ASSERT_TRUE(execs);
  ASSERT_EQ(execs->size(), 1u);
  EXPECT_EQ((*execs)[0].id, start->id);
  EXPECT_EQ((*execs)[0].command, "echo up; sleep 1000");
  EXPECT_TRUE((*execs)[0].background);
  EXPECT_FALSE((*execs)[0].status);
  EXPECT_EQ((*execs)[0].standard_output_bytes, 3u);
  ASSERT_TRUE(agent.client().kill_background(start->id));
  auto status = agent.client().wait_background(start->id);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->cause, Cause::killed);
  ASSERT_TRUE(agent.client().kill_background(start->id, true));
  for (;;) {  // forgotten on the agent's next turn
    auto left = agent.client().list_execs();
    ASSERT_TRUE(left);
    if (left->empty()) break;
  }
  auto unknown = agent.client().poll_output(start->id, OutputStream::standard_output, 0);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::not_found);
}

TEST(Background, FailureToStartIsReportedAtOnce) {
  HostedAgent agent;
  BackgroundSpec spec;
  spec.exec = program({"no-such-program"});
  auto start = agent.client().start_background(spec);
  ASSERT_TRUE(start);
  ASSERT_TRUE(start->failed);
  EXPECT_EQ(start->failed->cause, Cause::not_started);
}

TEST(Background, APollWaitsForNewsAndCanBeStopped) {
  HostedAgent agent;
  auto start = agent.client().start_background(job("sleep 1000"));
  ASSERT_TRUE(start);
  auto nothing = agent.client().poll_output(start->id, OutputStream::standard_output, 0, 100,
                                            std::chrono::milliseconds(50));
  ASSERT_TRUE(nothing);
  EXPECT_TRUE(nothing->bytes.empty());
  EXPECT_FALSE(nothing->at_end);
  std::stop_source stop;
  std::thread stopper([&] { stop.request_stop(); });
  auto stopped = agent.client().poll_output(start->id, OutputStream::standard_output, 0, 100,
                                            std::chrono::minutes(10), stop.get_token());
  stopper.join();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
}

TEST(Background, EndedJobsAreBounded) {
  HostedAgent agent;
  std::vector<ExecId> ids;
  for (int i = 0; i < 70; ++i) {
    auto start = agent.client().start_background(job("echo " + std::to_string(i)));
    ASSERT_TRUE(start);
    ids.push_back(start->id);
    auto status = agent.client().wait_background(start->id);
    ASSERT_TRUE(status);
  }
  auto execs = agent.client().list_execs();
  ASSERT_TRUE(execs);
  EXPECT_LE(execs->size(), 66u);
  EXPECT_FALSE(agent.client().wait_background(ids.front()));
  EXPECT_EQ(poll_until(agent.client(), ids.back(), "69"), "69\n");
}

TEST(Background, TheTimeLimitHolds) {
  HostedAgent agent;
  auto spec = job("sleep 1000");
  spec.exec.time_limit = std::chrono::milliseconds(100);
  auto start = agent.client().start_background(spec);
  ASSERT_TRUE(start);
  auto status = agent.client().wait_background(start->id);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->cause, Cause::time_limit);
}

}  // namespace
}  // namespace anchorhold::session
