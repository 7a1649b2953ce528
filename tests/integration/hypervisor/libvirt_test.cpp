// Real guests through libvirt, emulated: what a machine does from start to each of its ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

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
  EXPECT_EQ(exit.cause, ExitCause::guest_shutdown) << exit.detail;
  EXPECT_THAT(guest.console(), HasSubstr("tiny: up"));
  EXPECT_EQ(guest.machine().state(), MachineState::ended);
  EXPECT_TRUE(qemu_processes(host.folder()).empty());
}

}  // namespace
}  // namespace anchorhold::hypervisor
