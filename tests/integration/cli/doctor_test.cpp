#include <algorithm>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

using DoctorTest = CliTest;

TEST_F(DoctorTest, GoesTheWholeWayOnAComputerThatCan) {
  ANCHORHOLD_NEEDS_IMAGE();
  auto outcome = run({"doctor", "--json", "--image", image_});
  auto all = objects(outcome.out);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_EQ(all.back().at("type"), "doctor");
  EXPECT_EQ(all.back().at("ok"), true);
  for (const char* name : {"image", "start.boot", "start.mounts", "command"}) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const auto& check) {
      return check.value("name", "") == name && check.at("status") == "ok";
    })) << name;
  }
  EXPECT_TRUE(nothing_left());
}

TEST_F(DoctorTest, NamesAMissingImageAndItsFix) {
  auto outcome = run({"doctor", "--json", "--image", "no-such-image"});
  EXPECT_EQ(outcome.status, 1);
  bool found = false;
  for (const auto& check : objects(outcome.out)) {
    if (check.value("name", "") != "image") continue;
    found = true;
    EXPECT_EQ(check.at("status"), "fail");
    EXPECT_NE(check.at("fix").get<std::string>().find("anchorhold image build"), std::string::npos) << check;
  }
  EXPECT_TRUE(found) << outcome.out;
}

}  // namespace
}  // namespace anchorhold::cli
