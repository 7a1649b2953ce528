// What the agent parses and decides without touching anything.
#include <gtest/gtest.h>

#include "accounts.h"
#include "boot_words.h"
#include "service.h"
#include "spawn.h"

namespace anchorhold::guest {
namespace {

TEST(BootWords, AreFoundAmongOthers) {
  auto words = parse_boot_words(
      "console=ttyS0 panic=-1 anchorhold.root=/dev/dm-0  dm-mod.create=\"a b,c\" "
      "anchorhold.scratch=1073741824\n");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->root, "/dev/dm-0");
  EXPECT_EQ(words->scratch_bytes, 1073741824u);
}

TEST(BootWords, InsideQuotesAndBehindTheSeparatorAreNotOurs) {
  auto words = parse_boot_words("x=\"anchorhold.root=/dev/a b\" -- anchorhold.root=/dev/b");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->root, "");
  EXPECT_EQ(parse_boot_words("anchorhold.root=\"/dev/x y\"")->root, "/dev/x y");
}

TEST(BootWords, WrongOnesAreRefused) {
  for (const char* line : {"anchorhold.root=", "anchorhold.root=sda", "anchorhold.root=/dev/../etc",
                           "anchorhold.scratch=", "anchorhold.scratch=0", "anchorhold.scratch=12M",
                           "anchorhold.scratch=99999999999999999999", "anchorhold.unknown=1", "anchorhold."})
    EXPECT_FALSE(parse_boot_words(line)) << line;
}

constexpr const char* passwd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "broken line\n"
    "anchorhold:x:1000:1000::/home/anchorhold:/bin/bash\n"
    "nohome:x:1001:1001:::\n"
    "toomany:x:1:1:a:b:c:d\n"
    "no-user:x:4294967295:1::/:\n"
    "last:x:7:8::/last:/bin/sh";
constexpr const char* group =
    "root:x:0:\naudio:x:29:other,anchorhold\nusers:x:1000:anchorhold\nbad\nx:x:30:anchor\n";

TEST(Accounts, AreFoundByNameAndNumber) {
  auto by_default = find_account("", passwd, group);
  ASSERT_TRUE(by_default);
  EXPECT_EQ(by_default->uid, 1000u);
  EXPECT_EQ(by_default->home, "/home/anchorhold");
  EXPECT_EQ(by_default->groups, std::vector<gid_t>{29});
  EXPECT_EQ(find_account("root", passwd, group)->uid, 0u);
  EXPECT_EQ(find_account("1001", passwd, group)->name, "nohome");
  EXPECT_EQ(find_account("nohome", passwd, group)->home, "/");
  EXPECT_EQ(find_account("last", passwd, group)->gid, 8u);
}

TEST(Accounts, WithoutAnEntryNumbersStillWorkAndNamesDoNot) {
  EXPECT_EQ(find_account("4242", passwd, group)->home, "/");
  EXPECT_FALSE(find_account("nobody", passwd, group));
  EXPECT_FALSE(find_account("toomany", passwd, group));
  EXPECT_FALSE(find_account("no-user", passwd, group));
  EXPECT_FALSE(find_account("4294967295", passwd, group));
  EXPECT_EQ(find_account("", "", "")->uid, default_uid);
  EXPECT_EQ(find_account("root", "", "")->uid, 0u);
}

TEST(Versions, MismatchNamesBoth) {
  wire::HelloRequest request;
  request.set_host_version("9.9");
  request.mutable_protocol()->set_lowest(highest_protocol + 1);
  request.mutable_protocol()->set_highest(highest_protocol + 3);
  auto result = negotiate(request);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::failed_precondition);
  EXPECT_NE(result.error().message.find("the host (9.9) speaks versions 3 to 5"), std::string::npos)
      << result.error().message;
  EXPECT_NE(result.error().message.find("versions 1 to 2"), std::string::npos) << result.error().message;
  request.mutable_protocol()->set_lowest(0);
  EXPECT_EQ(negotiate(request).value(), highest_protocol);
  request.Clear();
  EXPECT_FALSE(negotiate(request));
}

TEST(Candidates, FollowThePath) {
  EXPECT_EQ(candidates_for("ls", "/a:/b"), (std::vector<std::string>{"/a/ls", "/b/ls"}));
  EXPECT_EQ(candidates_for("ls", "/a::/b"), (std::vector<std::string>{"/a/ls", "ls", "/b/ls"}));
  EXPECT_EQ(candidates_for("./ls", "/a"), std::vector<std::string>{"./ls"});
  EXPECT_TRUE(candidates_for("", "/a").empty());
}

TEST(ShareNames, AreOneVisibleComponent) {
  EXPECT_TRUE(check_share_name("report"));
  EXPECT_TRUE(check_share_name("Q3 \xc3\xbc-2"));
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                  std::string("a\nb"), std::string(".hidden"), std::string(300, 'x')})
    EXPECT_FALSE(check_share_name(name)) << name;
}

}  // namespace
}  // namespace anchorhold::guest
