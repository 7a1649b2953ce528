// The mode table, first as the pure function, then every route by which something pre-existing could vanish,
// on a real keeper: refused, or kept.
#include <atomic>
#include <cerrno>
#include <thread>

#include "decide.h"
#include "keeper_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

constexpr Subject none{};
constexpr Subject old{true, true, false};
constexpr Subject own{true, false, false};
constexpr Subject stand_in{true, false, true};

struct Row {
  Operation operation;
  Subject object;
  Subject target;
  int rw;
  int no_delete;
  bool keeps_object;
  bool keeps_target;
};

constexpr Row table[] = {
    {Operation::create, none, none, 0, 0, false, false},
    {Operation::link, old, none, 0, 0, false, false},
    {Operation::link, own, none, 0, 0, false, false},
    {Operation::write, old, none, 0, 0, true, false},
    {Operation::write, own, none, 0, 0, false, false},
    {Operation::write, stand_in, none, 0, 0, false, false},
    {Operation::set_attributes, old, none, 0, 0, false, false},
    {Operation::set_attributes, own, none, 0, 0, false, false},
    {Operation::remove, old, none, 0, EACCES, true, false},
    {Operation::remove, own, none, 0, 0, false, false},
    {Operation::remove, stand_in, none, 0, EACCES, false, false},
    {Operation::rename, old, none, 0, EACCES, false, false},
    {Operation::rename, old, old, 0, EACCES, false, true},
    {Operation::rename, own, none, 0, 0, false, false},
    {Operation::rename, own, own, 0, 0, false, false},
    {Operation::rename, own, old, 0, 0, false, true},
    {Operation::rename, own, stand_in, 0, 0, false, false},
    {Operation::rename, stand_in, none, 0, EACCES, false, false},
    {Operation::exchange, own, own, 0, 0, false, false},
    {Operation::exchange, own, old, 0, EACCES, false, false},
    {Operation::exchange, old, own, 0, EACCES, false, false},
    {Operation::exchange, old, old, 0, EACCES, false, false},
    {Operation::exchange, own, stand_in, 0, EACCES, false, false},
};

TEST(Decide, FollowsTheTable) {
  for (std::size_t i = 0; i < std::size(table); ++i) {
    const Row& row = table[i];
    Facts facts{row.object, row.target};
    EXPECT_EQ(decide(Mode::ro, row.operation, facts).error, EROFS) << "row " << i;
    for (Mode mode : {Mode::rw, Mode::rw_no_delete}) {
      auto decision = decide(mode, row.operation, facts);
      int expected = mode == Mode::rw ? row.rw : row.no_delete;
      EXPECT_EQ(decision.error, expected) << "row " << i << " in " << to_string(mode);
      EXPECT_EQ(decision.reason.empty(), expected == 0) << "row " << i;
      if (expected != 0) continue;
      EXPECT_EQ(decision.keep_object, row.keeps_object) << "row " << i;
      EXPECT_EQ(decision.keep_target, row.keeps_target) << "row " << i;
    }
  }
}

TEST(Decide, WhatReplacesSomethingOldTakesOverItsProtection) {
  EXPECT_TRUE(decide(Mode::rw_no_delete, Operation::rename, {own, old}).target_passes_on);
  EXPECT_TRUE(decide(Mode::rw_no_delete, Operation::rename, {own, stand_in}).target_passes_on);
  EXPECT_FALSE(decide(Mode::rw_no_delete, Operation::rename, {own, own}).target_passes_on);
  EXPECT_FALSE(decide(Mode::rw_no_delete, Operation::rename, {own, none}).target_passes_on);
}

TEST(Decide, AttributesOfOldThingsAreRecorded) {
  EXPECT_TRUE(decide(Mode::rw, Operation::set_attributes, {old, none}).record_object);
  EXPECT_TRUE(decide(Mode::rw, Operation::rename, {old, none}).record_object);
  EXPECT_TRUE(decide(Mode::rw, Operation::exchange, {own, old}).record_target);
  EXPECT_FALSE(decide(Mode::rw, Operation::set_attributes, {own, none}).record_object);
}

class NoDelete : public KeeperTest {
 protected:
  void SetUp() override {
    KeeperTest::SetUp();
    write_text(grant_ / "old.txt", "precious");
    ASSERT_TRUE(std::filesystem::create_directories(grant_ / "folder/empty"));
    write_text(grant_ / "folder/inner.txt", "inner");
    std::filesystem::create_symlink("old.txt", grant_ / "old-link");
    start(Mode::rw_no_delete);
  }
  void expect_refused(const KeeperAnswer& answer) {
    EXPECT_EQ(answer.error, EACCES);
    auto report = expect_report(ReportKind::refused);
    EXPECT_EQ(report.error, EACCES);
    EXPECT_FALSE(report.reason.empty());
    EXPECT_EQ(read_text(grant_ / "old.txt"), "precious");
    EXPECT_EQ(read_text(grant_ / "folder/inner.txt"), "inner");
  }
};

TEST_F(NoDelete, Unlink) {
  expect_refused(unlink("", "old.txt"));
  expect_refused(unlink("folder", "inner.txt"));
  expect_refused(unlink("", "old-link"));
}

TEST_F(NoDelete, Rmdir) {
  expect_refused(rmdir("folder", "empty"));
}

TEST_F(NoDelete, RenameAway) {
  expect_refused(rename("", "old.txt", "", "gone.txt"));
  expect_refused(rename("", "old.txt", "folder", "old.txt", rename_flag::no_replace));
  expect_refused(rename("", "folder", "", "elsewhere"));
  expect_refused(rename("", "old.txt", "", "OLD.TXT"));
  ASSERT_EQ(mkdir("", "own").error, 0);
  expect_refused(rename("", "old.txt", "own", "old.txt"));
}

TEST_F(NoDelete, Exchange) {
  create_with("", "own.txt", "mine");
  expect_refused(rename("", "own.txt", "", "old.txt", rename_flag::exchange));
  expect_refused(rename("", "old.txt", "", "own.txt", rename_flag::exchange));
  ASSERT_EQ(mkdir("", "own").error, 0);
  expect_refused(rename("", "own", "", "folder", rename_flag::exchange));
}

TEST_F(NoDelete, RenameOverIsKeptAndTheNameStaysProtected) {
  create_with("", "new.txt", "rewritten");
  ASSERT_EQ(rename("", "new.txt", "", "old.txt").error, 0);
  EXPECT_EQ(read_text(grant_ / "old.txt"), "rewritten");
  EXPECT_TRUE(is_kept("precious"));
  // The session wrote what is there now, but the name must not vanish in two steps either.
  EXPECT_EQ(unlink("", "old.txt").error, EACCES);
  EXPECT_EQ(rename("", "old.txt", "", "away").error, EACCES);
  create_with("", "new.txt", "again");
  ASSERT_EQ(rename("", "new.txt", "", "old.txt").error, 0);
  EXPECT_EQ(read_text(grant_ / "old.txt"), "again");
  EXPECT_EQ(unlink("", "old.txt").error, EACCES);
  EXPECT_EQ(kept().size(), 1u);
}

TEST_F(NoDelete, LinkThenRename) {
  ASSERT_EQ(link("old.txt", "", "second").error, 0);
  // The session's own second name may come and go; the first may not.
  expect_refused(rename("", "old.txt", "", "third"));
  expect_refused(unlink("", "old.txt"));
  EXPECT_EQ(rename("", "second", "folder", "moved").error, 0);
  EXPECT_EQ(unlink("folder", "moved").error, 0);
  EXPECT_EQ(read_text(grant_ / "old.txt"), "precious");
  expect_refused(unlink("", "old.txt"));
}

TEST_F(NoDelete, WritingByEveryRouteKeepsTheOldContentFirst) {
  struct {
    const char* name;
    std::function<int(const std::string&)> change;
  } routes[] = {
      {"open_for_write", [&](const std::string& f) { return open_write(f).error; }},
      {"O_TRUNC", [&](const std::string& f) { return open_write(f, open_flag::truncate).error; }},
      {"append", [&](const std::string& f) { return open_write(f, open_flag::append).error; }},
      {"create over", [&](const std::string& f) { return create("", f, open_flag::truncate).error; }},
      {"truncate", [&](const std::string& f) { return truncate(at(f).get(), 0).error; }},
      {"second name",
       [&](const std::string& f) {
         if (int error = link(f, "", f + ".2").error) return error;
         return open_write(f + ".2", open_flag::truncate).error;
       }},
      {"punch hole",
       [&](const std::string& f) {
         auto opened = open_write(f);
         if (opened.error) return opened.error;
         return allocate(opened.descriptor.get(), allocate_flag::punch_hole | allocate_flag::keep_size, 0, 4)
             .error;
       }},
  };
  int number = 0;
  for (auto& route : routes) {
    std::string file = "route" + std::to_string(number), text = "content " + std::to_string(number);
    ++number;
    write_text(grant_ / file, text);  // the host made it: not the session's own
    EXPECT_EQ(route.change(file), 0) << route.name;
    EXPECT_TRUE(is_kept(text)) << route.name;
  }
}

TEST_F(NoDelete, AHardLinkOutsideIsCopiedNotMoved) {
  std::filesystem::create_hard_link(grant_ / "old.txt", outside_ / "alias");
  create_with("", "new.txt", "rewritten");
  ASSERT_EQ(rename("", "new.txt", "", "old.txt").error, 0);
  write_text(outside_ / "alias", "changed by the other name");
  EXPECT_TRUE(is_kept("precious"));
}

TEST_F(NoDelete, WhatTheHostMadeMeanwhileIsNotTheSessions) {
  write_text(grant_ / "from-host", "theirs");
  expect_refused(unlink("", "from-host"));
  // Even where the session had something of that name before.
  create_with("", "name", "mine");
  ASSERT_EQ(unlink("", "name").error, 0);
  write_text(grant_ / "name", "theirs");
  expect_refused(unlink("", "name"));
}

// The host saves a file under a name that the session makes and removes as fast as it can, so that the
// session's decision is about one file and its removal could hit another.
// Whether a save falls between the look and the removal is chance here; ledger_test.cpp has it fall there.
TEST_F(NoDelete, WhatTheHostSavesIsNeverHitByARemovalOfTheSessionsOwn) {
  constexpr int rounds = 100;
  std::atomic<int> begun{0};
  for (int i = 0; i < rounds; ++i) {
    std::string content = "saved by the host " + std::to_string(i);
    write_text(outside_ / "temporary", content);
    std::thread session([&] {
      for (int n = 0; n < 4; ++n) {
        create("", "contested");
        ++begun;
        unlink("", "contested");
      }
    });
    while (begun < 4 * i + 1) std::this_thread::yield();
    std::filesystem::rename(outside_ / "temporary", grant_ / "contested");
    session.join();
    // It was away for the moment of the second look, if at all.
    EXPECT_EQ(read_text(grant_ / "contested"), content);
    std::filesystem::remove(grant_ / "contested");
  }
}

TEST_F(NoDelete, TheRecordOutlivesTheProcess) {
  create_with("", "own.txt", "mine");
  ASSERT_EQ(mkdir("", "own").error, 0);
  create_with("", "new.txt", "rewritten");
  ASSERT_EQ(rename("", "new.txt", "", "old.txt").error, 0);
  keeper_->child->kill(SIGKILL);
  start(Mode::rw_no_delete);
  EXPECT_EQ(unlink("", "own.txt").error, 0);
  EXPECT_EQ(rmdir("", "own").error, 0);
  EXPECT_EQ(unlink("", "old.txt").error, EACCES);
  EXPECT_TRUE(is_kept("precious"));
}

class ReadWrite : public KeeperTest {
 protected:
  void SetUp() override {
    KeeperTest::SetUp();
    write_text(grant_ / "old.txt", "precious");
    ASSERT_TRUE(std::filesystem::create_directory(grant_ / "empty"));
    start(Mode::rw);
  }
};

TEST_F(ReadWrite, RemovalKeepsWhatWasThere) {
  ASSERT_EQ(unlink("", "old.txt").error, 0);
  EXPECT_FALSE(std::filesystem::exists(grant_ / "old.txt"));
  EXPECT_TRUE(is_kept("precious"));
  EXPECT_EQ(rmdir("", "empty").error, 0);
  EXPECT_TRUE(std::filesystem::is_empty(grant_));
}

TEST_F(ReadWrite, SymlinksAndFifosAreKeptToo) {
  std::filesystem::create_symlink("old.txt", grant_ / "link");
  ASSERT_EQ(mkfifo((grant_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(unlink("", "link").error, 0);
  EXPECT_EQ(unlink("", "fifo").error, 0);
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(grant_ / "link")));
  auto entry = *std::filesystem::directory_iterator(ledger_ / "kept");
  EXPECT_TRUE(entry.is_fifo());
}

TEST_F(ReadWrite, RenameAndExchangeAreAllowed) {
  create_with("", "own", "mine");
  EXPECT_EQ(rename("", "old.txt", "", "own", rename_flag::exchange).error, 0);
  EXPECT_EQ(read_text(grant_ / "own"), "precious");
  EXPECT_EQ(rename("", "own", "empty", "away").error, 0);
  EXPECT_EQ(read_text(grant_ / "empty/away"), "precious");
}

TEST_F(ReadWrite, ARenameThatFailsLeavesTheTargetWithOneName) {
  // Over a folder that is not empty: the kernel refuses after everything was kept.
  ASSERT_EQ(mkdir("", "own").error, 0);
  write_text(grant_ / "empty/inside", "x");
  EXPECT_EQ(rename("", "own", "", "empty").error, ENOTEMPTY);
  auto opened = open_write("old.txt", open_flag::truncate);
  ASSERT_EQ(opened.error, 0);
  EXPECT_TRUE(is_kept("precious"));
}

TEST_F(ReadWrite, RemovedWithAnotherNameElsewhereIsCopied) {
  std::filesystem::create_hard_link(grant_ / "old.txt", outside_ / "alias");
  ASSERT_EQ(unlink("", "old.txt").error, 0);
  write_text(outside_ / "alias", "changed by the other name");
  EXPECT_TRUE(is_kept("precious"));
}

}  // namespace
}  // namespace anchorhold::mounts::testing
