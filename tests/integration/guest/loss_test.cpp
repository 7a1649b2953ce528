// Ends of a guest, each in a guest of its own.
#include <gtest/gtest.h>

#include "commands.h"
#include "guest_harness.h"

namespace anchorhold::session {
namespace {

class Loss : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = anchorhold::testing::RealGuest::why_not(); !why.empty()) GTEST_SKIP() << why;
    anchorhold::testing::RealGuestOptions options;
    options.cpus = 1;
    options.memory = ByteSize::mib(512);
    auto booted = anchorhold::testing::RealGuest::boot(std::move(options));
    ASSERT_TRUE(booted) << booted.error().message;
    guest_ = std::move(*booted);
  }
  std::unique_ptr<anchorhold::testing::RealGuest> guest_;
};

TEST_F(Loss, AMachineThatIsKilledMidCommandIsTheCause) {
  auto& client = guest_->client();
  auto exec = client.start(shell("echo started; sleep 1000"));
  ASSERT_TRUE(exec);
  ASSERT_TRUE((*exec)->read(OutputStream::standard_output));
  ASSERT_TRUE(guest_->kill_machine());
  auto read = (*exec)->read(OutputStream::standard_output);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(read.error().message.starts_with("guest lost: ")) << read.error().message;
  auto status = (*exec)->wait();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(client.lost());
}

TEST_F(Loss, AnAgentThatDiesTakesTheGuestWithIt) {
  auto& client = guest_->client();
  // Root asks the kernel to end everything at once, as a crash of PID 1 would.
  ExecSpec reset = shell(
      "echo b > /proc/sysrq-trigger || reboot -f; python3 -c 'import ctypes; "
      "ctypes.CDLL(None).reboot(0x01234567)'; sleep 1000");
  reset.user = "root";
  auto status = client.run(reset, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(status.error().message.starts_with("guest lost: ")) << status.error().message;
}

TEST_F(Loss, ShutdownPowersOff) {
  ASSERT_TRUE(guest_->client().start_background({shell("trap '' TERM; sleep 1000"), {}}));
  ASSERT_TRUE(guest_->client().shutdown(std::chrono::milliseconds(100)));
  EXPECT_TRUE(eventually([&] { return guest_->guest().lost(); }));
}

}  // namespace
}  // namespace anchorhold::session
