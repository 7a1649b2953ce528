// What killed hosts left below the runtime directory is removed; what belongs to a living one is not.
#include "session/leftovers.h"

#include <fstream>
#include <gtest/gtest.h>
#include <thread>

#include "guest_folder.h"

namespace anchorhold::session {
namespace {

class Leftovers : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = TemporaryDirectory::create("leftovers");
    ASSERT_TRUE(made) << made.error().message;
    runtime_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    guests_ = guests_folder(runtime_->path());
  }

  std::unique_ptr<TemporaryDirectory> runtime_;
  std::filesystem::path guests_;
};

TEST_F(Leftovers, OfDeadHostsAreRemovedAndNoOthers) {
  EXPECT_EQ(remove_leftovers(runtime_->path()), 0u);
  auto living = GuestFolder::create(guests_);
  ASSERT_TRUE(living) << living.error().message;
  // One host was killed while its guest ran, one before it had taken the lock.
  std::filesystem::create_directories(guests_ / "killed");
  std::ofstream(guests_ / "killed/lock");
  std::ofstream(guests_ / "killed/console.log") << "a line";
  std::filesystem::create_directories(guests_ / "killed-early");
  EXPECT_EQ(remove_leftovers(runtime_->path()), 2u);
  EXPECT_TRUE(std::filesystem::exists(living->path()));
  EXPECT_FALSE(std::filesystem::exists(guests_ / "killed"));
  EXPECT_FALSE(std::filesystem::exists(guests_ / "killed-early"));
}

TEST_F(Leftovers, AreNotWhatIsBeingMadeJustNow) {
  std::jthread sweeper([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) remove_leftovers(runtime_->path());
  });
  for (int i = 0; i < 300; ++i) {
    auto made = GuestFolder::create(guests_);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_TRUE(std::filesystem::exists(made->path()));
  }
}

}  // namespace
}  // namespace anchorhold::session
