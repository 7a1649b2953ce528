// One process and one guest for all tests of this program: booting is what costs.
#include <exception>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "guest_harness.h"

namespace {

class GuestEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    if (auto why = anchorhold::testing::RealGuest::why_not(); !why.empty()) GTEST_SKIP() << why;
    try {
      anchorhold::testing::shared_guest();
    } catch (const std::exception& error) {
      FAIL() << error.what();
    }
  }
  void TearDown() override { anchorhold::testing::end_shared_guest(); }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::AddGlobalTestEnvironment(new GuestEnvironment);
  return RUN_ALL_TESTS();
}
