// Real guests through libvirt, emulated: what a machine does from start to each of its ends.
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sstream>

#include "hypervisor/tiny_guest.h"

namespace anchorhold::hypervisor {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class LibvirtGuest : public testing::Test {
 protected:
  void SetUp() override {
    if (test_kernel().empty()) GTEST_SKIP() << "ANCHORHOLD_TEST_IMAGE names no image: no guest is started";
  }
};

TEST_F(LibvirtGuest, BootsToItsInitAndPowersOff) {
  TestHost host;
  Guest guest(host, host.spec("boot", "poweroff"));
  EXPECT_EQ(guest.machine().state(), MachineState::made);
  ASSERT_TRUE(ok(guest.start())) << guest.console();
  MachineExit exit = guest.wait_for_exit();
  EXPECT_EQ(exit.cause, ExitCause::guest_shutdown) << to_string(exit.cause) << exit.detail;
  EXPECT_THAT(guest.console(), HasSubstr("tiny: up"));
  EXPECT_EQ(guest.machine().state(), MachineState::ended);
  EXPECT_TRUE(qemu_processes(TestHost::runtime()).empty());
}

TEST_F(LibvirtGuest, BootsOnQ35) {
  TestHost host;
  MachineSpec spec = host.spec("q35", "stay");
  spec.type = MachineType::q35;
  Guest guest(host, spec);
  ASSERT_TRUE(ok(guest.start())) << guest.console();
  EXPECT_TRUE(guest.wait_for_console("tiny: up")) << guest.console();
  EXPECT_TRUE(ok(guest.stop()));
}

TEST_F(LibvirtGuest, IsGoneAfterStop) {
  TestHost host;
  Guest guest(host, host.spec("stop", "stay"));
  ASSERT_TRUE(ok(guest.start())) << guest.console();
  ASSERT_TRUE(guest.wait_for_console("tiny: up")) << guest.console();
  EXPECT_EQ(guest.machine().state(), MachineState::running);
  EXPECT_EQ(qemu_processes(TestHost::runtime()).size(), 1u);
  ASSERT_TRUE(ok(guest.stop()));
  EXPECT_TRUE(qemu_processes(TestHost::runtime()).empty());
  EXPECT_EQ(guest.wait_for_exit().cause, ExitCause::stopped);
  EXPECT_TRUE(ok(guest.stop())) << "stopping what has ended is fine";
  EXPECT_FALSE(guest.start()) << "it is not to be started twice";
}

TEST_F(LibvirtGuest, StopsADeafGuestWhenItsGraceIsOver) {
  TestHost host;
  Guest guest(host, host.spec("deaf", "stay"));
  ASSERT_TRUE(ok(guest.start()));
  ASSERT_TRUE(guest.wait_for_console("tiny: up")) << guest.console();
  ASSERT_TRUE(ok(guest.stop(milliseconds(500))));
  EXPECT_EQ(guest.wait_for_exit().cause, ExitCause::stopped);
}

TEST_F(LibvirtGuest, CanBeStoppedWhileItStarts) {
  TestHost host;
  Guest guest(host, host.spec("early", "stay"));
  guest.start_without_waiting();
  ASSERT_TRUE(ok(guest.stop()));
  EXPECT_EQ(guest.wait_for_exit().cause, ExitCause::stopped);
  EXPECT_TRUE(eventually([&] { return qemu_processes(TestHost::runtime()).empty(); }));
}

TEST_F(LibvirtGuest, EndsItsProcessWhenTheMachineIsDestroyed) {
  TestHost host;
  {
    Guest guest(host, host.spec("dropped", "stay"));
    ASSERT_TRUE(ok(guest.start()));
  }
  host.close();
  EXPECT_TRUE(qemu_processes(TestHost::runtime()).empty());
}

TEST_F(LibvirtGuest, ReportsAPanicWithTheGuestsLastWords) {
  TestHost host;
  Guest guest(host, host.spec("panic", "exit"));
  ASSERT_TRUE(ok(guest.start()));
  MachineExit exit = guest.wait_for_exit();
  EXPECT_EQ(exit.cause, ExitCause::guest_reset) << to_string(exit.cause) << exit.detail;
  EXPECT_THAT(guest.console(), HasSubstr("Kernel panic"));
  EXPECT_FALSE(exit.detail.empty());
}

TEST_F(LibvirtGuest, ReportsWhyItNeverStarted) {
  TestHost host;
  MachineSpec spec = host.spec("nokernel", "stay");
  spec.kernel = host.folder() / "nothing-here";
  Guest guest(host, spec);
  Status started = guest.start();
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("nothing-here"));
  MachineExit exit = guest.wait_for_exit();
  EXPECT_EQ(exit.cause, ExitCause::start_failed);
  EXPECT_THAT(exit.detail, HasSubstr("nothing-here"));
}

TEST_F(LibvirtGuest, CannotFillTheDiskThroughItsConsole) {
  TestHost host;
  MachineSpec spec = host.spec("flood", "flood");
  spec.console.limit = ByteSize::kib(32);
  Guest guest(host, spec);
  ASSERT_TRUE(ok(guest.start()));
  // More than the limit has come when the number of lines says so.
  ASSERT_TRUE(guest.wait_for_console("flood 0000002000")) << guest.console();
  EXPECT_LE(guest.console().size(), 32u << 10);
  EXPECT_EQ(guest.console().find("flood 0000000001"), std::string::npos);
}

TEST_F(LibvirtGuest, EndsAtItsTimeLimit) {
  TestHost host;
  MachineSpec spec = host.spec("limit", "stay");
  spec.wall_time = std::chrono::seconds(3);
  Guest guest(host, spec);
  guest.start_without_waiting();
  MachineExit exit = guest.wait_for_exit();
  EXPECT_EQ(exit.cause, ExitCause::time_limit) << to_string(exit.cause) << exit.detail;
  EXPECT_TRUE(eventually([&] { return qemu_processes(TestHost::runtime()).empty(); }));
}

TEST_F(LibvirtGuest, ReportsThatItsProcessWasKilled) {
  TestHost host;
  Guest guest(host, host.spec("killed", "stay"));
  ASSERT_TRUE(ok(guest.start()));
  auto processes = qemu_processes(TestHost::runtime());
  ASSERT_EQ(processes.size(), 1u);
  kill(processes[0], SIGKILL);
  MachineExit exit = guest.wait_for_exit();
  EXPECT_EQ(exit.cause, ExitCause::process_lost) << to_string(exit.cause);
  EXPECT_THAT(exit.detail, HasSubstr("killed from outside or crashed"));
}

TEST_F(LibvirtGuest, ReportsWhoToldItsProcessToEnd) {
  TestHost host;
  Guest guest(host, host.spec("told", "stay"));
  ASSERT_TRUE(ok(guest.start()));
  auto processes = qemu_processes(TestHost::runtime());
  ASSERT_EQ(processes.size(), 1u);
  kill(processes[0], SIGTERM);
  MachineExit exit = guest.wait_for_exit();
  EXPECT_EQ(exit.cause, ExitCause::process_lost) << to_string(exit.cause);
  EXPECT_THAT(exit.detail, HasSubstr("host-signal"));
  EXPECT_THAT(exit.detail, HasSubstr(fmt::format("signal 15 from pid {}", getpid())));
}

TEST_F(LibvirtGuest, GivesFreedMemoryBack) {
  TestHost host;
  MachineSpec spec = host.spec("memory", "memory:192");
  spec.memory = ByteSize::mib(384);
  Guest guest(host, spec);
  ASSERT_TRUE(ok(guest.start()));
  ASSERT_TRUE(guest.wait_for_console("tiny: memory used")) << guest.console();
  ByteSize highest;
  auto resident = [&] {
    auto statistics = guest.memory();
    EXPECT_TRUE(ok(statistics));
    highest = std::max(highest, statistics ? statistics->resident : ByteSize{});
    return statistics ? statistics->resident : ByteSize{};
  };
  EXPECT_TRUE(eventually([&] { return resident() > ByteSize::mib(192); })) << to_string(highest);
  ASSERT_TRUE(guest.wait_for_console("tiny: memory freed")) << guest.console();
  EXPECT_TRUE(eventually([&] { return resident().bytes + (128ull << 20) < highest.bytes; }))
      << to_string(resident()) << " of " << to_string(highest);
}

TEST_F(LibvirtGuest, ShrinksByItsBalloon) {
  TestHost host;
  Guest guest(host, host.spec("balloon", "stay"));
  ASSERT_TRUE(ok(guest.start()));
  ASSERT_TRUE(guest.wait_for_console("tiny: up")) << guest.console();
  EXPECT_EQ(guest.memory().value().given, ByteSize::mib(256));
  EXPECT_FALSE(guest.set_memory_target(ByteSize::gib(1)));
  ASSERT_TRUE(ok(guest.set_memory_target(ByteSize::mib(128))));
  EXPECT_TRUE(eventually([&] { return guest.memory().value().given <= ByteSize::mib(128); }));
}

TEST_F(LibvirtGuest, RunsBesideOthers) {
  TestHost host;
  Guest first(host, host.spec("one", "stay")), second(host, host.spec("two", "stay"));
  first.start_without_waiting();
  ASSERT_TRUE(ok(second.start()));
  ASSERT_TRUE(first.wait_for_console("tiny: up")) << first.console();
  ASSERT_TRUE(second.wait_for_console("tiny: up")) << second.console();
  ASSERT_TRUE(ok(first.stop()));
  EXPECT_EQ(second.machine().state(), MachineState::running);
  EXPECT_EQ(qemu_processes(TestHost::runtime()).size(), 1u);
}

TEST_F(LibvirtGuest, IsConfined) {
  TestHost host;
  Guest guest(host, host.spec("confined", "stay"));
  ASSERT_TRUE(ok(guest.start()));
  auto processes = qemu_processes(TestHost::runtime());
  ASSERT_EQ(processes.size(), 1u);
  std::ostringstream status;
  status << std::ifstream(fmt::format("/proc/{}/status", processes[0])).rdbuf();
  EXPECT_THAT(status.str(), HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(status.str(), HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(status.str(), HasSubstr("CapEff:\t0000000000000000"));
}

}  // namespace
}  // namespace anchorhold::hypervisor
