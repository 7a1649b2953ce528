#include "guest_life.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/files.h"

namespace anchorhold::session {
namespace {

using hypervisor::ExitCause;
using std::chrono::milliseconds;

class GuestLifeTest : public testing::Test {
 protected:
  TemporaryDirectory folder_ = *TemporaryDirectory::create();
  std::filesystem::path console_ = folder_.path() / "console.log";
  FakeClock clock_;
  ManualExecutor executor_{clock_};
  GuestLife life_{console_, executor_};
};

TEST_F(GuestLifeTest, TheMachinesEndExplainsTheEndOfItsDevices) {
  life_.part_ended("the vsock device", {ErrorCode::unavailable, "the virtual machine closed it", {}});
  EXPECT_TRUE(life_.lost());
  life_.machine_ended({ExitCause::process_lost, "killed by signal 9"});
  life_.part_ended("the reader of report", {ErrorCode::unavailable, "ended", {}});
  executor_.advance(std::chrono::seconds(10));
  EXPECT_EQ(life_.cause(milliseconds(0)),
            "the virtual machine's process was killed or crashed (killed by signal 9)");
}

TEST_F(GuestLifeTest, ADeviceThatEndsAloneIsTheCauseAfterAWhile) {
  std::string told;
  life_.on_lost([&](const std::string& cause) { told = cause; });
  life_.part_ended("the reader of report", {ErrorCode::unavailable, "killed by signal 9", {}});
  EXPECT_EQ(told, "");
  executor_.advance(std::chrono::seconds(10));
  EXPECT_EQ(told, "the reader of report ended: killed by signal 9");
  life_.machine_ended({ExitCause::stopped, ""});
  EXPECT_EQ(life_.cause(milliseconds(0)), told);
}

TEST_F(GuestLifeTest, ABrokenDeviceIsTheCauseAtOnce) {
  life_.part_ended("the vsock device", {ErrorCode::internal, "killed by signal 31", {}});
  EXPECT_EQ(life_.cause(milliseconds(0)), "the vsock device ended: killed by signal 31");
}

TEST_F(GuestLifeTest, WhatWeEndOurselvesIsNoLoss) {
  bool told = false;
  life_.on_lost([&](const std::string&) { told = true; });
  life_.stopping();
  life_.part_ended("the vsock device", {ErrorCode::internal, "ended", {}});
  life_.machine_ended({ExitCause::stopped, ""});
  executor_.advance(std::chrono::seconds(10));
  EXPECT_FALSE(told);
  EXPECT_EQ(life_.cause(milliseconds(0)), "the guest was stopped");
}

TEST_F(GuestLifeTest, WhoAsksLateIsToldToo) {
  life_.machine_ended({ExitCause::time_limit, ""});
  std::string told;
  life_.on_lost([&](const std::string& cause) { told = cause; });
  EXPECT_EQ(told, "the guest reached its time limit");
  EXPECT_TRUE(life_.reached_wall_time());
}

TEST_F(GuestLifeTest, AStreamThatArrivesBeforeAnybodyWaitsIsKept) {
  auto [left, right] = *socket_pair(SOCK_STREAM);
  int number = left.get();
  life_.stream_arrived(std::move(left));
  life_.stream_arrived(std::move(right));  // a second one is not taken
  auto stream = life_.wait_for_stream(milliseconds(0), {});
  ASSERT_TRUE(stream);
  EXPECT_EQ(stream->get(), number);
}

TEST_F(GuestLifeTest, ALimitNamesTheConsolesEnd) {
  std::ofstream(console_) << "one\ntwo\n";
  auto stream = life_.wait_for_stream(milliseconds(1), {});
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, ErrorCode::deadline_exceeded);
  EXPECT_NE(stream.error().message.find("one | two"), std::string::npos);
}

TEST_F(GuestLifeTest, TheConsolesEndIsShortAndHarmless) {
  std::ofstream(console_) << std::string(100'000, 'x') << "\n\x1b[2J\xff\xfe hidden\r\n\n";
  for (int i = 0; i < 100; ++i) std::ofstream(console_, std::ios::app) << "line " << i << "\n";
  EXPECT_EQ(console_excerpt(console_, 2), "line 98 | line 99");
  EXPECT_EQ(console_excerpt(folder_.path() / "none"), "");
}

TEST_F(GuestLifeTest, AnOopsIsShownFromItsBeginning) {
  std::ofstream out(console_);
  out << "booting\n[    0.9] BUG: unable to handle page fault for address: ffff\n[    0.9] #PF: supervisor "
         "read\n";
  for (int i = 0; i < 60; ++i) out << "[    0.9]  ? a_function+0x12/0x40\n";
  out << "[    0.9] Kernel panic - not syncing: Fatal exception in interrupt\n";
  out.close();
  EXPECT_EQ(
      console_excerpt(console_, 2),
      "[    0.9] BUG: unable to handle page fault for address: ffff | [    0.9] #PF: supervisor read | ... | "
      "[    0.9] Kernel panic - not syncing: Fatal exception in interrupt");
}

}  // namespace
}  // namespace anchorhold::session
