#include "mounts/grant.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

GrantRules person() {
  GrantRules rules;
  rules.home = "/home/ada";
  rules.own_folders = {"/home/ada/.config/anchorhold", "/home/ada/.local/state/anchorhold",
                       "/run/user/1000/anchorhold"};
  return rules;
}

TEST(JudgePath, TheTable) {
  struct {
    const char* path;
    bool granted;
  } table[] = {
      {"/", false},
      {"/home", false},
      {"/home/ada", false},
      {"/home/ada/report", true},
      {"/home/ada/Documents/2026", true},
      {"/home/adam/shared", true},
      {"/home/ada/.config", false},
      {"/home/ada/.config/other", true},
      {"/home/ada/.config/anchorhold", false},
      {"/home/ada/.config/anchorhold/keys", false},
      {"/home/ada/.config/anchorhold-notes", true},
      {"/home/ada/.local", false},
      {"/home/ada/.ssh", false},
      {"/home/ada/.SSH/config.d", false},
      {"/home/ada/project/.env.d", false},
      {"/home/ada/keys/server.pem", false},
      {"/root", false},
      {"/root/work", true},
      {"/etc", false},
      {"/etc/nginx", false},
      {"/etcetera", true},
      {"/usr", false},
      {"/usr/bin", false},
      {"/usr/lib/python3", false},
      {"/usr/local", false},
      {"/usr/local/src/tool", true},
      {"/var", false},
      {"/var/lib/postgresql", false},
      {"/var/www/site", true},
      {"/proc/1", false},
      {"/sys", false},
      {"/dev/shm", false},
      {"/boot", false},
      {"/run/user/1000", false},
      {"/run/media/ada/usb", true},
      {"/run/media", false},
      {"/tmp", false},
      {"/tmp/scratch", true},
      {"/mnt", false},
      {"/mnt/disk", true},
      {"/opt/data", true},
  };
  for (const auto& row : table) {
    auto refused = judge_path(row.path, person());
    EXPECT_EQ(!refused, row.granted) << row.path << (refused ? ": " + refused->message : "");
    if (refused) {
      EXPECT_EQ(refused->code, ErrorCode::permission_denied) << row.path;
      EXPECT_FALSE(refused->hint.empty()) << row.path;
    }
  }
}

TEST(GrantName, IsAlwaysOneGoodComponent) {
  std::vector<std::string> none;
  EXPECT_EQ(grant_name("report", none), "report");
  EXPECT_EQ(grant_name("Jahresbericht 2026 \xc3\xa4", none), "Jahresbericht 2026 \xc3\xa4");
  EXPECT_EQ(grant_name("bad\xff\x01\nname", none), "bad___name");
  EXPECT_EQ(grant_name("half \xc3", none), "half _");
  EXPECT_EQ(grant_name("surrogate\xed\xa0\x80", none), "surrogate___");
  EXPECT_EQ(grant_name("c1\xc2\x85", none), "c1_");
  EXPECT_EQ(grant_name("", none), "folder");
  EXPECT_EQ(grant_name("..", none), "folder");
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\xc3\xa4";
  EXPECT_EQ(grant_name("x" + umlauts, none).size(), 99u);
  EXPECT_EQ(grant_name(std::string(255, 'n'), none).size(), 100u);
}

TEST(GrantName, AClashGetsANumber) {
  std::vector<std::string> taken{"report", "report-2", std::string(100, 'n')};
  EXPECT_EQ(grant_name("report", taken), "report-3");
  EXPECT_EQ(grant_name("other", taken), "other");
  EXPECT_EQ(grant_name(std::string(255, 'n'), taken), std::string(98, 'n') + "-2");
}

TEST(GrantTag, FitsTheDeviceAndTellsNamesApart) {
  EXPECT_EQ(grant_tag("report"), "grant-report");
  for (std::string name :
       {std::string(100, 'n'), std::string(31, 'n'), std::string("with space"), std::string("\xc3\xa4")}) {
    auto tag = grant_tag(name);
    EXPECT_LE(tag.size(), 36u);
    EXPECT_EQ(tag.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-"), std::string::npos) << tag;
    EXPECT_NE(tag, grant_tag(name + "-2"));
  }
}

class ResolveGrant : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = TemporaryDirectory::create("anchorhold-grant-test");
    ASSERT_TRUE(made);
    directory_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    base_ = fs::canonical(directory_->path());
    ASSERT_TRUE(fs::create_directories(base_ / "home/report/inner"));
    ASSERT_TRUE(fs::create_directories(base_ / "home/.state/anchorhold"));
    std::ofstream(base_ / "home/data.csv") << "a,b";
    rules_.home = base_ / "home";
    rules_.own_folders = {base_ / "home/.state/anchorhold"};
  }
  Result<Grant> resolve(const fs::path& path, Mode mode = Mode::rw) {
    return resolve_grant(base_ / path, mode, others_, rules_);
  }
  void expect_refused(const fs::path& path, ErrorCode code, Mode mode = Mode::rw) {
    auto grant = resolve(path, mode);
    ASSERT_FALSE(grant) << path;
    EXPECT_EQ(grant.error().code, code) << grant.error().message;
    EXPECT_FALSE(grant.error().message.empty());
  }
  void add(const fs::path& path, Mode mode) {
    auto grant = resolve(path, mode);
    ASSERT_TRUE(grant) << grant.error().message;
    others_.push_back(std::move(*grant));
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  fs::path base_;
  GrantRules rules_;
  std::vector<Grant> others_;
};

TEST_F(ResolveGrant, AFolderAppearsByItsName) {
  auto grant = resolve("home/report/");
  ASSERT_TRUE(grant) << grant.error().message;
  EXPECT_EQ(grant->host_path, base_ / "home/report");
  EXPECT_EQ(grant->name, "report");
  EXPECT_EQ(grant->guest_path(), "/mnt/report");
  EXPECT_EQ(grant->tag, "grant-report");
  EXPECT_FALSE(grant->only_file);
}

TEST_F(ResolveGrant, ASingleFileAppearsInAFolderOfItsOwn) {
  auto grant = resolve("home/data.csv");
  ASSERT_TRUE(grant) << grant.error().message;
  EXPECT_EQ(grant->only_file, "data.csv");
  EXPECT_EQ(grant->guest_path(), "/mnt/data.csv/data.csv");
}

TEST_F(ResolveGrant, SymlinksAreResolvedBeforeJudging) {
  fs::create_symlink("report", base_ / "home/link");
  fs::create_symlink(".", base_ / "home/innocent");
  fs::create_symlink("/etc", base_ / "home/config");
  auto grant = resolve("home/link");
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->name, "report");
  expect_refused("home/innocent", ErrorCode::permission_denied);
  expect_refused("home/config", ErrorCode::permission_denied);
  expect_refused("home/report/..", ErrorCode::permission_denied);
  expect_refused("home/report/../.state/anchorhold", ErrorCode::permission_denied);
  expect_refused("home/.state", ErrorCode::permission_denied);
}

TEST_F(ResolveGrant, TheOpenedFolderIsTheGrant) {
  auto grant = resolve("home/report");
  ASSERT_TRUE(grant);
  struct stat before, after;
  ASSERT_EQ(fstat(grant->root.get(), &before), 0);
  fs::rename(base_ / "home/report", base_ / "home/old");
  fs::create_directory_symlink("/etc", base_ / "home/report");
  ASSERT_EQ(fstat(grant->root.get(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(faccessat(grant->root.get(), "inner", F_OK, 0), 0);
}

TEST_F(ResolveGrant, WhatIsNotThereOrNotAFolder) {
  expect_refused("home/missing", ErrorCode::not_found);
  ASSERT_EQ(mkfifo((base_ / "home/fifo").c_str(), 0600), 0);
  expect_refused("home/fifo", ErrorCode::invalid_argument);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (base_ / "home/socket").native().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  expect_refused("home/socket", ErrorCode::invalid_argument);
  EXPECT_FALSE(resolve_grant("/dev/null", Mode::ro, others_, rules_));
  expect_refused("home/data.csv/x", ErrorCode::invalid_argument);
}

TEST_F(ResolveGrant, NotReadableOrWritable) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  ASSERT_EQ(chmod((base_ / "home/report").c_str(), 0555), 0);
  expect_refused("home/report", ErrorCode::permission_denied);
  EXPECT_TRUE(resolve("home/report", Mode::ro));
  ASSERT_EQ(chmod((base_ / "home/report").c_str(), 0), 0);
  expect_refused("home/report", ErrorCode::permission_denied, Mode::ro);
  ASSERT_EQ(chmod((base_ / "home/report").c_str(), 0755), 0);
}

TEST_F(ResolveGrant, NamesOfDifferentFoldersAreTold) {
  ASSERT_TRUE(fs::create_directories(base_ / "home/other/report"));
  add("home/report", Mode::rw);
  add("home/other/report", Mode::rw);
  EXPECT_EQ(others_[1].name, "report-2");
  EXPECT_NE(others_[0].tag, others_[1].tag);
}

TEST_F(ResolveGrant, TwiceTheSameIsRefused) {
  add("home/report", Mode::rw);
  expect_refused("home/report", ErrorCode::already_exists);
  expect_refused("home/report", ErrorCode::already_exists, Mode::ro);
}

TEST_F(ResolveGrant, AStricterModeInsideIsNotUndoneFromOutside) {
  struct {
    Mode outer, inner;
    bool granted;
  } table[] = {
      {Mode::rw, Mode::ro, false},
      {Mode::rw, Mode::rw_no_delete, false},
      {Mode::rw_no_delete, Mode::ro, false},
      {Mode::rw, Mode::rw, true},
      {Mode::ro, Mode::rw, true},
      {Mode::ro, Mode::rw_no_delete, true},
      {Mode::rw_no_delete, Mode::rw, true},
      {Mode::ro, Mode::ro, true},
  };
  for (const auto& row : table) {
    for (bool outer_first : {true, false}) {
      others_.clear();
      add(outer_first ? "home/report" : "home/report/inner", outer_first ? row.outer : row.inner);
      auto second =
          resolve(outer_first ? "home/report/inner" : "home/report", outer_first ? row.inner : row.outer);
      EXPECT_EQ(second.has_value(), row.granted)
          << to_string(row.outer) << " around " << to_string(row.inner);
    }
  }
}

}  // namespace
}  // namespace anchorhold::mounts
