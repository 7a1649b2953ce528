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
  for (const char* name : {"image", "session-programs", "network", "start.boot", "start.mounts", "command"}) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const auto& check) {
      return check.value("name", "") == name && check.at("status") == "ok";
    })) << name;
  }
  EXPECT_TRUE(nothing_left());
}

// What each session starts and reads, the doctor looks at too: a folder of programs that lacks one, and rules
// that nobody can understand.
TEST_F(DoctorTest, NamesAMissingProgramAndRulesThatAreNotUnderstood) {
  auto said_of = [&](const std::string& out, const std::string& name) {
    for (const auto& check : objects(out))
      if (check.value("name", "") == name) return check;
    ADD_FAILURE() << "nothing about " << name << " in " << out;
    return nlohmann::json::object();
  };
  auto whole = std::filesystem::path(program()).parent_path();
  auto bin = folder("bin");
  for (const char* missing :
       {"anchorhold-vsockd", "anchorhold-ledger", "anchorhold-egressd", "anchorhold-qemu"}) {
    std::filesystem::remove_all(bin);
    std::filesystem::create_directories(bin);
    std::filesystem::copy_file(whole / "anchorhold", bin / "anchorhold");
    for (const auto& entry : std::filesystem::directory_iterator(whole)) {
      auto name = entry.path().filename().string();
      if (name.starts_with("anchorhold-") && name != missing)
        std::filesystem::create_symlink(entry.path(), bin / name);
    }
    auto outcome = start_program({bin / "anchorhold", "doctor", "--json", "--image", "none"}).finish();
    EXPECT_EQ(outcome.status, 1);
    auto check = said_of(outcome.out,
                         std::string_view(missing) == "anchorhold-qemu" ? "programs" : "session-programs");
    EXPECT_EQ(check.value("status", ""), "fail") << missing;
    EXPECT_NE(check.value("what", "").find(missing), std::string::npos) << check;
    EXPECT_FALSE(check.value("fix", "").empty());
  }
  write_text(home() / "config/anchorhold/config.toml", "[[egress.rule]]\nhost = \"x\"\n");
  auto check = said_of(run({"doctor", "--json", "--image", "none"}).out, "network");
  EXPECT_EQ(check.value("status", ""), "fail");
  EXPECT_NE(check.value("what", "").find("config.toml:1"), std::string::npos) << check;
  EXPECT_NE(check.value("fix", "").find((home() / "config/anchorhold").string()), std::string::npos) << check;
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
