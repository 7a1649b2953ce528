// What a session may do at most, and what it is asked about: the bulk guard, the quotas, symlinks that lead
// out, placeholders of clouds, and hidden names that the session makes itself.
#include <sys/xattr.h>
#include <thread>

#include "bulk_guard.h"
#include "keeper_fixture.h"
#include "placeholder.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

struct Nobody {
  Nobody() : pair(*socket_pair(SOCK_SEQPACKET)), reporter(std::move(pair.first)) {}
  std::pair<UniqueFd, UniqueFd> pair;
  Reporter reporter;
};

TEST(BulkGuard, CountsInAWindowThatMoves) {
  Nobody nobody;
  BulkGuard guard({.changes = 3, .window = seconds(60), .patience = seconds(0)}, nobody.reporter);
  BulkGuard::Time t{};
  using J = BulkGuard::Judgement;
  EXPECT_EQ(guard.judge(t), J::go_on);
  EXPECT_EQ(guard.judge(t + seconds(30)), J::go_on);
  EXPECT_EQ(guard.judge(t + seconds(50)), J::go_on);
  EXPECT_EQ(guard.judge(t + seconds(59)), J::ask);
  EXPECT_EQ(guard.judge(t + seconds(60)), J::go_on);  // the first is no longer within a minute
  EXPECT_EQ(guard.judge(t + seconds(61)), J::ask);
}

TEST(BulkGuard, AFileIsRewrittenOnce) {
  Nobody nobody;
  BulkGuard guard({.changes = 1, .window = seconds(60), .patience = seconds(0)}, nobody.reporter);
  BulkGuard::Time t{};
  Identity one{.device = 1, .inode = 1, .birth_ns = 1}, two{.device = 1, .inode = 2, .birth_ns = 1};
  using J = BulkGuard::Judgement;
  EXPECT_EQ(guard.judge_rewrite(one, t), J::go_on);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(guard.judge_rewrite(one, t), J::go_on);
  EXPECT_EQ(guard.judge_rewrite(two, t), J::ask);
}

TEST(BulkGuard, WithoutAnAnswerItIsNoUntilItHasBeenQuiet) {
  Nobody nobody;
  BulkGuard guard({.changes = 1, .window = seconds(60), .patience = seconds(0)}, nobody.reporter);
  EXPECT_FALSE(guard.ask("unlink", "a"));
  using J = BulkGuard::Judgement;
  auto now = std::chrono::steady_clock::now();
  EXPECT_EQ(guard.judge(now), J::refuse);
  EXPECT_EQ(guard.judge(now + seconds(59)), J::refuse);
  EXPECT_EQ(guard.judge(now + seconds(118)), J::refuse);  // it went on trying
  EXPECT_EQ(guard.judge(now + seconds(118 + 60)), J::go_on);
}

TEST(BulkGuard, NothingIsCountedWhenItIsOff) {
  Nobody nobody;
  BulkGuard guard({.changes = 0, .window = seconds(60), .patience = seconds(0)}, nobody.reporter);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(guard.judge({}), BulkGuard::Judgement::go_on);
}

class Guarded : public KeeperTest {
 protected:
  static constexpr int limit = 5;
  void begin(Mode mode, int old_files, const char* answer_seconds = "60") {
    for (int i = 0; i < old_files; ++i) write_text(grant_ / ("old" + std::to_string(i)), "precious");
    start(mode, {"--bulk-changes", std::to_string(limit), "--answer-seconds", answer_seconds});
  }
  int remove_old(int number) { return unlink("", "old" + std::to_string(number)).error; }
  // The next question, answered; the change that waits goes on.
  Report answer(Verdict verdict) {
    Report report = expect_report(ReportKind::question);
    auto bytes = encode_answer({report.question, verdict});
    EXPECT_GT(::send(keeper_->reports.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    return report;
  }
};

TEST_F(Guarded, ManyRemovalsOfOldThingsAskFirst) {
  begin(Mode::rw, 3 * limit);
  for (int i = 0; i < limit; ++i) EXPECT_EQ(remove_old(i), 0);
  int error = -1;
  std::thread session([&] { error = remove_old(limit); });
  auto question = answer(Verdict::allow_once);
  session.join();
  EXPECT_EQ(error, 0);
  EXPECT_EQ(question.operation, "unlink");
  EXPECT_EQ(question.path, "old5");
  // As much again, and then the next question.
  for (int i = limit + 1; i < 2 * limit; ++i) EXPECT_EQ(remove_old(i), 0);
  std::thread again([&] { error = remove_old(2 * limit); });
  answer(Verdict::deny);
  again.join();
  EXPECT_EQ(error, EACCES);
  EXPECT_EQ(remove_old(2 * limit), EACCES);  // without another question
  EXPECT_TRUE(fs::exists(grant_ / "old10"));
}

TEST_F(Guarded, AnAnswerMayHoldForTheSession) {
  begin(Mode::rw, 4 * limit);
  for (int i = 0; i < limit; ++i) EXPECT_EQ(remove_old(i), 0);
  int error = -1;
  std::thread session([&] { error = remove_old(limit); });
  answer(Verdict::allow_for_session);
  session.join();
  EXPECT_EQ(error, 0);
  for (int i = limit + 1; i < 4 * limit; ++i) EXPECT_EQ(remove_old(i), 0);
}

TEST_F(Guarded, WhileOneWaitsTheOthersGoOn) {
  begin(Mode::rw, 2 * limit);
  for (int i = 0; i < limit; ++i) EXPECT_EQ(remove_old(i), 0);
  int error = -1;
  std::thread session([&] { error = remove_old(limit); });
  Report question = expect_report(ReportKind::question);
  create_with("", "own", "mine");
  EXPECT_EQ(unlink("", "own").error, 0);
  // Answers to other questions, and nonsense, change nothing.
  for (std::uint64_t number : {question.question + 1, question.question + 1000}) {
    auto bytes = encode_answer({number, Verdict::allow_for_session});
    ::send(keeper_->reports.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  ::send(keeper_->reports.get(), "nonsense", 8, MSG_NOSIGNAL);
  // Nobody will answer any more.
  auto bytes = encode_answer({0, Verdict::deny});
  ::send(keeper_->reports.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  session.join();
  EXPECT_EQ(error, EACCES);
}

TEST_F(Guarded, NobodyAnswersInTime) {
  begin(Mode::rw, 2 * limit, "0");
  for (int i = 0; i < limit; ++i) EXPECT_EQ(remove_old(i), 0);
  EXPECT_EQ(remove_old(limit), EACCES);
  EXPECT_EQ(expect_report(ReportKind::refused).error, EACCES);
  EXPECT_TRUE(fs::exists(grant_ / "old5"));
}

TEST_F(Guarded, WhatTheSessionMadeNeverCounts) {
  begin(Mode::rw_no_delete, 1, "0");
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 4 * limit; ++i) {
      std::string name = "own" + std::to_string(i);
      create_with("", name, "mine");
      ASSERT_EQ(open_write(name, open_flag::truncate).error, 0);
      ASSERT_EQ(rename("", name, "", "moved").error, 0);
      ASSERT_EQ(unlink("", "moved").error, 0);
    }
  // One old file, written again and again.
  for (int i = 0; i < 4 * limit; ++i) ASSERT_EQ(open_write("old0", open_flag::append).error, 0);
}

TEST_F(Guarded, RewritesAndReplacementsCountToo) {
  begin(Mode::rw_no_delete, 3 * limit, "0");
  EXPECT_EQ(open_write("old0").error, 0);
  EXPECT_EQ(truncate(at("old1").get(), 0).error, 0);
  for (int i = 2; i < limit; ++i) {
    create_with("", "new", "x");
    EXPECT_EQ(rename("", "new", "", "old" + std::to_string(i)).error, 0);
  }
  EXPECT_EQ(open_write("old6", open_flag::truncate).error, EACCES);
  create_with("", "new", "x");
  EXPECT_EQ(rename("", "new", "", "old7").error, EACCES);
  EXPECT_EQ(read_text(grant_ / "old6"), "precious");
  EXPECT_EQ(read_text(grant_ / "old7"), "precious");
}

class Quotas : public KeeperTest {};

TEST_F(Quotas, FilesThatWereMadeAndNotRemovedAgain) {
  start(Mode::rw, {"--max-files", "3"});
  create_with("", "one", "1");
  EXPECT_EQ(mkdir("", "two").error, 0);
  EXPECT_EQ(symlink("", "three", "one").error, 0);
  EXPECT_EQ(create("", "four").error, EDQUOT);
  EXPECT_EQ(expect_report(ReportKind::refused).error, EDQUOT);
  EXPECT_EQ(mkdir("", "four").error, EDQUOT);
  EXPECT_EQ(symlink("", "four", "one").error, EDQUOT);
  EXPECT_EQ(link("one", "", "four").error, EDQUOT);
  EXPECT_EQ(open_write("one").error, 0);
  EXPECT_EQ(unlink("", "three").error, 0);
  EXPECT_EQ(create("", "four").error, 0);
  EXPECT_EQ(rename("", "four", "", "one").error, 0);  // one name less
  EXPECT_EQ(create("", "five").error, 0);
  EXPECT_EQ(create("", "six").error, EDQUOT);
}

TEST_F(Quotas, BytesAreAccountedForBeforeTheyAreWritten) {
  start(Mode::rw, {"--max-bytes", "1000"});
  auto account = [&](std::uint64_t bytes) {
    auto request = make_request(Verb::account);
    request.size = bytes;
    return ask(request, {}).error;
  };
  EXPECT_EQ(account(999), 0);
  EXPECT_EQ(account(2), EDQUOT);
  EXPECT_EQ(account(UINT64_MAX), EDQUOT);
  EXPECT_EQ(numbers().bytes_written, 999u);
  auto file = create("", "file");
  EXPECT_EQ(allocate(file.descriptor.get(), 0, 0, 100).error, EDQUOT);
  EXPECT_EQ(allocate(file.descriptor.get(), 0, 0, 1).error, 0);
  EXPECT_EQ(account(1), EDQUOT);
}

TEST_F(Quotas, AThreadRaceNeverGoesBeyond) {
  start(Mode::rw, {"--max-bytes", "100000"});
  std::atomic<std::uint64_t> given{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        auto request = make_request(Verb::account);
        request.size = 97;
        if (client_->ask(request, {}).error == 0) given += 97;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(given, 100000u / 97 * 97);
}

class Symlinks : public KeeperTest {};

TEST_F(Symlinks, ThatLeadOutAreReportedOrRefused) {
  start(Mode::rw);
  ASSERT_EQ(mkdir("", "folder").error, 0);
  EXPECT_EQ(symlink("", "away", "/etc/passwd").error, 0);
  EXPECT_EQ(expect_report(ReportKind::warning).path, "away");
  ASSERT_EQ(symlink("folder", "inside", "../file").error, 0);
  // From its new place the same words lead out.
  EXPECT_EQ(rename("folder", "inside", "", "moved").error, 0);
  EXPECT_EQ(expect_report(ReportKind::warning).path, "moved");
  start(Mode::rw, {"--refuse-escaping-symlinks"});
  EXPECT_EQ(symlink("", "away2", "/etc/passwd").error, EACCES);
  EXPECT_EQ(expect_report(ReportKind::refused).path, "away2");
  ASSERT_EQ(symlink("folder", "inside", "../file").error, 0);
  EXPECT_EQ(rename("folder", "inside", "", "moved2").error, EACCES);
  EXPECT_EQ(link("folder/inside", "", "moved2").error, EACCES);
  EXPECT_EQ(rename("folder", "inside", "folder", "renamed").error, 0);
}

TEST(Placeholders, AreKnownByNameAndByWhatIsSaidOfThem) {
  EXPECT_EQ(placeholder_by_name("report.odt.nextcloud", 1), "Nextcloud");
  EXPECT_EQ(placeholder_by_name("report.odt.owncloud", 0), "ownCloud");
  EXPECT_EQ(placeholder_by_name("report.odt.nextcloud", 2), "");
  EXPECT_EQ(placeholder_by_name(".report.pages.icloud", 180), "iCloud");
  EXPECT_EQ(placeholder_by_name("report.icloud", 180), "");
  EXPECT_EQ(placeholder_by_name(".icloud", 180), "");
  EXPECT_EQ(placeholder_by_name("empty", 0), "");
  EXPECT_EQ(placeholder_by_attribute("user.nextcloud.hydrate_exec", "anything"), "Nextcloud");
  EXPECT_EQ(placeholder_by_attribute("user.openvfs.state", "dehydrated"), "OpenVFS");
  EXPECT_EQ(placeholder_by_attribute("user.openvfs.state", "hydrated"), "");
  auto map = [](char state) { return std::string("\x82\xa8pinstate\x01\xa5state", 17) + state; };
  EXPECT_EQ(placeholder_by_attribute("user.openvfs.data", map(1)), "OpenVFS");
  EXPECT_EQ(placeholder_by_attribute("user.openvfs.data", map(0)), "");
  EXPECT_EQ(placeholder_by_attribute("user.openvfs.data", ""), "");
  EXPECT_EQ(placeholder_by_attribute("user.openvfs.data", "\xa5state"), "");
  auto bits = [](std::uint32_t value) { return std::string(reinterpret_cast<char*>(&value), sizeof value); };
  for (std::uint32_t mark : {0x1000u, 0x40000u, 0x400000u})
    EXPECT_EQ(placeholder_by_attribute("system.ntfs_attrib", bits(0x20 | mark)),
              "a cloud's client for Windows");
  EXPECT_EQ(placeholder_by_attribute("system.ntfs_attrib", bits(0x20)), "");
  EXPECT_EQ(placeholder_by_attribute("user.cifs.dosattrib", "abc"), "");
}

std::string mode_name(const ::testing::TestParamInfo<Mode>& mode) {
  return mode.param == Mode::rw ? "rw" : "no_delete";
}

class Clouds : public KeeperTest, public ::testing::WithParamInterface<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Clouds, ::testing::Values(Mode::rw, Mode::rw_no_delete), mode_name);

TEST_P(Clouds, PlaceholdersAreNeitherWrittenNorReplacedNorRemoved) {
  write_text(grant_ / "report.odt.nextcloud", " ");
  write_text(grant_ / "sheet.ods", "");
  bool marked = setxattr((grant_ / "sheet.ods").c_str(), "user.openvfs.state", "dehydrated", 10, 0) == 0;
  // Among more attributes than are looked through.
  write_text(grant_ / "slides.odp", "");
  auto mark = [&](const std::string& name) {
    return setxattr((grant_ / "slides.odp").c_str(), name.c_str(), "x", 1, 0) == 0;
  };
  for (char c = 'a'; marked && c < 'i'; ++c) marked = mark("user." + std::string(200, c));
  marked = marked && mark("user.nextcloud.hydrate_exec");
  start(GetParam());
  std::vector<std::string> names{"report.odt.nextcloud"};
  if (marked) names.insert(names.end(), {"sheet.ods", "slides.odp"});
  for (const auto& name : names) {
    auto before = read_text(grant_ / name);
    EXPECT_EQ(open_write(name).error, EACCES) << name;
    EXPECT_NE(expect_report(ReportKind::refused).reason.find("placeholder"), std::string::npos) << name;
    EXPECT_EQ(open_write(name, open_flag::truncate).error, EACCES) << name;
    EXPECT_EQ(create("", name, open_flag::truncate).error, EACCES) << name;
    EXPECT_EQ(truncate(at(name).get(), 0).error, EACCES) << name;
    EXPECT_EQ(unlink("", name).error, EACCES) << name;
    create_with("", "new", "content");
    EXPECT_EQ(rename("", "new", "", name).error, EACCES) << name;
    EXPECT_EQ(unlink("", "new").error, 0);
    EXPECT_EQ(read_text(grant_ / name), before) << name;
  }
  // One that the session makes is none.
  create_with("", "own.nextcloud", "");
  EXPECT_EQ(open_write("own.nextcloud").error, 0);
  EXPECT_EQ(unlink("", "own.nextcloud").error, 0);
  if (!marked) GTEST_SKIP() << "no user xattrs on this file system: only names were tested";
}

class OwnHidden : public Clouds {};
INSTANTIATE_TEST_SUITE_P(Modes, OwnHidden, ::testing::Values(Mode::rw, Mode::rw_no_delete), mode_name);

TEST_P(OwnHidden, TheSessionsOwnInItsOwnFolders) {
  write_text(grant_ / ".env", "TOKEN=1");
  ASSERT_TRUE(fs::create_directory(grant_ / "old"));
  write_text(grant_ / "old/visible", "theirs");
  write_text(grant_ / "old/.npmrc", "token");
  start(GetParam());
  auto look = [&](const std::string& folder, std::string_view name) {
    return ask(make_request(Verb::look_up_own, name), {at(folder).get()}).error;
  };
  ASSERT_EQ(mkdir("", "node_modules").error, 0);
  EXPECT_EQ(look("node_modules", "server.pem"), ENOENT);
  create_with("node_modules", "server.pem", "test key");
  EXPECT_EQ(look("node_modules", "server.pem"), 0);
  EXPECT_EQ(open_write("node_modules/server.pem").error, 0);
  EXPECT_EQ(mkdir("node_modules", ".aws").error, 0);
  create_with("node_modules/.aws", "config", "x");
  EXPECT_EQ(open_write("node_modules/.aws/config").error, 0);
  EXPECT_EQ(rename("node_modules", "server.pem", "node_modules/.aws", "other.pem").error, 0);
  // In the person's own folders nothing has changed.
  EXPECT_EQ(look("", ".env"), ENOENT);
  EXPECT_EQ(look("old", ".npmrc"), ENOENT);
  EXPECT_EQ(create("", ".npmrc").error, EACCES);
  EXPECT_EQ(create("old", "x.pem").error, EACCES);
  EXPECT_EQ(rename("node_modules/.aws", "other.pem", "old", "other.pem").error, EACCES);
  EXPECT_EQ(rename("node_modules", ".aws", "", ".aws").error, EACCES);
  // What was there before cannot hide behind such a name.
  EXPECT_EQ(link("old/visible", "node_modules", "id_rsa").error, EACCES);
  EXPECT_EQ(rename("old", "visible", "node_modules", "id_rsa").error, EACCES);
  create_with("node_modules", "own", "x");
  EXPECT_EQ(rename("node_modules", "own", "node_modules", "id_own", rename_flag::no_replace).error, 0);
  // What the host puts there is the host's.
  write_text(grant_ / "node_modules/host.key", "secret");
  EXPECT_EQ(look("node_modules", "host.key"), ENOENT);
  EXPECT_EQ(open_write("node_modules/host.key").error, EACCES);
  EXPECT_EQ(unlink("node_modules", "host.key").error, EACCES);
  EXPECT_EQ(create("node_modules", "host.key", 0).error, EACCES);
  EXPECT_EQ(rename("node_modules", "id_own", "node_modules", "host.key", rename_flag::exchange).error,
            EACCES);
  EXPECT_EQ(read_text(grant_ / "node_modules/host.key"), "secret");
  // All of the session's own can be removed again.
  EXPECT_EQ(unlink("node_modules/.aws", "other.pem").error, 0);
  EXPECT_EQ(unlink("node_modules/.aws", "config").error, 0);
  EXPECT_EQ(rmdir("node_modules", ".aws").error, 0);
  EXPECT_EQ(read_text(grant_ / ".env"), "TOKEN=1");
}

TEST_P(OwnHidden, AnOldFolderThatIsMovedThereTakesItsSecretsAlong) {
  if (GetParam() != Mode::rw) GTEST_SKIP() << "old folders are not moved in this mode";
  ASSERT_TRUE(fs::create_directories(grant_ / "project/inner"));
  write_text(grant_ / "project/.env", "TOKEN=1");
  start(GetParam());
  ASSERT_EQ(mkdir("", "own").error, 0);
  ASSERT_EQ(rename("", "project", "own", "project").error, 0);
  EXPECT_EQ(ask(make_request(Verb::look_up_own, ".env"), {at("own/project").get()}).error, ENOENT);
  EXPECT_EQ(open_write("own/project/.env").error, EACCES);
  ASSERT_EQ(mkdir("own", ".ssh").error, 0);
  ASSERT_EQ(rename("own", "project", "own/.ssh", "project").error, 0);
  EXPECT_EQ(open_write("own/.ssh/project/.env").error, EACCES);
  EXPECT_EQ(mkdir("own/.ssh/project", "new").error, EACCES);
}

TEST_F(Quotas, AnAttributeWithoutANameIsNone) {
  write_text(grant_ / "file", "x");
  start(Mode::rw);
  EXPECT_EQ(ask(make_request(Verb::remove_xattr, "user."), {at("file").get()}).error, EOPNOTSUPP);
  EXPECT_EQ(ask(make_request(Verb::set_xattr, "user."), {at("file").get()}, "v").error, EOPNOTSUPP);
}

}  // namespace
}  // namespace anchorhold::mounts::testing
