// What is kept, when, and what a crash leaves.
#include "ledger.h"

#include <atomic>
#include <thread>

#include "content.h"
#include "database/database.h"
#include "keeper_fixture.h"
#include "ledger_recent.h"
#include "tree.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

class LedgerTest : public KeeperTest {
 protected:
  std::unique_ptr<Ledger> open_ledger(LedgerLimits limits = {}) {
    auto ledger = Ledger::open(ledger_, limits, at().get());
    EXPECT_TRUE(ledger) << ledger.error().message;
    return ledger ? std::move(*ledger) : nullptr;
  }
  Located located(const std::string& path) {
    auto tree = Tree::open(at(), HiddenNames::standard(), std::nullopt);
    EXPECT_TRUE(tree);
    auto object = tree->locate(at(path).get());
    EXPECT_TRUE(object) << path;
    return std::move(*object);
  }
  // The keeper ends, and everything it knew is in rows.
  void settle() {
    client_.reset();
    keeper_->sockets.clear();
    keeper_->child->wait();
  }
  // The first column of the first row.
  std::int64_t query(const std::string& sql) {
    auto database = database::Database::open(ledger_ / "journal.db", database::Database::Mode::read_only);
    EXPECT_TRUE(database) << database.error().message;
    auto value = database->query_integer(sql);
    EXPECT_TRUE(value) << value.error().message;
    return value && *value ? **value : -1;
  }
};

TEST_F(LedgerTest, AttributesAreRecordedBeforeTheFirstChange) {
  write_text(grant_ / "old", "x");
  ASSERT_EQ(::chmod((grant_ / "old").c_str(), 0640), 0);
  timespec times[2] = {{1'000'000, 5}, {2'000'000, 7}};
  ASSERT_EQ(utimensat(AT_FDCWD, (grant_ / "old").c_str(), times, 0), 0);
  start(Mode::rw);
  ASSERT_EQ(chmod("old", 0600).error, 0);
  ASSERT_EQ(chmod("old", 0666).error, 0);
  EXPECT_EQ(query("SELECT mode FROM object WHERE path=x'6f6c64'"), S_IFREG | 0640);
  EXPECT_EQ(query("SELECT modify_s * 1000000000 + modify_ns FROM object WHERE path=x'6f6c64'"),
            2'000'000'000'000'007);
  EXPECT_EQ(query("SELECT count(*) FROM object WHERE path=x'6f6c64'"), 1);
  EXPECT_TRUE(kept().empty());
}

TEST_F(LedgerTest, FoldersTimesAreRecordedWhenNamesInThemChange) {
  ASSERT_TRUE(fs::create_directory(grant_ / "f"));
  timespec times[2] = {{1'000'000, 0}, {2'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (grant_ / "f").c_str(), times, 0), 0);
  start(Mode::rw);
  create_with("f", "new", "");
  EXPECT_EQ(query("SELECT modify_s * 1000000000 + modify_ns FROM object WHERE path=x'66'"),
            2'000'000'000'000'000);
}

TEST_F(LedgerTest, SymlinksAndXattrsAreRecorded) {
  fs::create_symlink("somewhere", grant_ / "s");
  start(Mode::rw);
  ASSERT_EQ(unlink("", "s").error, 0);
  EXPECT_EQ(query("SELECT target=x'736f6d657768657265' FROM object WHERE path=x'73'"), 1);
  settle();
  EXPECT_EQ(query("SELECT removed FROM object WHERE path=x'73'"), 1);
}

TEST_F(LedgerTest, RenamesOfOldThingsAreNoted) {
  write_text(grant_ / "a", "x");
  start(Mode::rw);
  create_with("", "own", "");
  ASSERT_EQ(rename("", "own", "", "own2").error, 0);
  ASSERT_EQ(rename("", "a", "", "b").error, 0);
  ASSERT_EQ(rename("", "b", "", "c").error, 0);
  EXPECT_EQ(rename("", "c", "", "missing", rename_flag::exchange).error, ENOENT);
  // What it was called in between is nobody's concern.
  EXPECT_EQ(query("SELECT path=x'61' FROM lost"), 1);
  EXPECT_EQ(query("SELECT count(*) FROM gained"), 1);
  EXPECT_EQ(query("SELECT name=x'63' FROM gained"), 1);
}

TEST_F(LedgerTest, TheSessionsOwnFilesLeaveNoTraceWhenTheyAreGone) {
  start(Mode::rw);
  for (int i = 0; i < 20; ++i) {
    create_with("", "temporary", "x");
    ASSERT_EQ(unlink("", "temporary").error, 0);
  }
  settle();
  EXPECT_EQ(query("SELECT count(*) FROM object WHERE created=1"), 0);
}

TEST_F(LedgerTest, TheQuotaIsNeverExceededSilently) {
  write_text(grant_ / "small", std::string(3000, 's'));
  write_text(grant_ / "large", std::string(20'000, 'l'));
  for (Mode mode : {Mode::rw, Mode::rw_no_delete}) {
    start(mode, {"--quota", "10000"});
    EXPECT_EQ(open_write("large", open_flag::truncate).error, EDQUOT);
    auto report = expect_report(ReportKind::refused);
    EXPECT_EQ(report.error, EDQUOT);
    EXPECT_EQ(fs::file_size(grant_ / "large"), 20'000u);
    EXPECT_EQ(truncate(at("large").get(), 0).error, EDQUOT);
    create_with("", "new", "x");
    EXPECT_EQ(rename("", "new", "", "large").error, EDQUOT);
    EXPECT_EQ(read_text(grant_ / "large"), std::string(20'000, 'l'));
    EXPECT_EQ(unlink("", "new").error, 0);
  }
  EXPECT_EQ(open_write("small").error, 0);
  EXPECT_EQ(numbers().bytes_kept, 3000u);
  EXPECT_EQ(numbers().quota_bytes, 10'000u);
}

TEST_F(LedgerTest, SparseFilesAreKeptSparse) {
  write_text(grant_ / "sparse", "head");
  constexpr std::uint64_t size = 1ull << 40;
  if (::truncate((grant_ / "sparse").c_str(), size) != 0) GTEST_SKIP() << "no file of this size here";
  start(Mode::rw);
  ASSERT_EQ(open_write("sparse").error, 0);
  auto entry = *fs::directory_iterator(ledger_ / "kept");
  EXPECT_EQ(fs::file_size(entry), size);
  struct stat info;
  ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
  EXPECT_LT(info.st_blocks, 1024);
  EXPECT_LT(numbers().bytes_kept, 1u << 20);
}

TEST_F(LedgerTest, OneCopyHoweverManyAskAtOnce) {
  write_text(grant_ / "file", std::string(3 << 20, 'x'));
  start(Mode::rw);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 20; ++n) EXPECT_EQ(open_write("file").error, 0);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(kept().size(), 1u);
  EXPECT_EQ(numbers().objects_kept, 1u);
}

TEST_F(LedgerTest, AKilledKeeperLeavesEverythingKeptOrUntouched) {
  constexpr int files = 200;
  for (int round = 0; round < 5; ++round) {
    // New files each time: of one that the session has changed already, what is kept is from before that.
    fs::remove_all(grant_ / "new");
    for (int i = 0; i < files; ++i) {
      fs::remove(grant_ / ("f" + std::to_string(i)));
      write_text(grant_ / ("f" + std::to_string(i)),
                 "round " + std::to_string(round) + " file " + std::to_string(i));
    }
    start(Mode::rw);
    std::atomic<int> asked{0};
    std::thread killer([&] {
      while (asked < 20 + round * 30) std::this_thread::yield();
      keeper_->child->kill(SIGKILL);
    });
    for (int i = 0; i < files; ++i) {
      std::string name = "f" + std::to_string(i);
      ++asked;
      UniqueFd fd = at(name);
      int error = 0;
      if (i % 3 == 0) {
        error = ask(make_request(Verb::unlink, name), {at().get()}).error;
      } else if (i % 3 == 1) {
        error = truncate(fd.get(), 0).error;
      } else {
        auto made = create("", "new");
        error = made.error ? made.error : rename("", "new", "", name).error;
      }
      if (error == EIO) break;
    }
    killer.join();
    start(Mode::rw);
    auto found = kept();
    for (int i = 0; i < files; ++i) {
      std::string text = "round " + std::to_string(round) + " file " + std::to_string(i);
      bool untouched = read_text(grant_ / ("f" + std::to_string(i))) == text;
      EXPECT_TRUE(untouched || found.contains(text)) << text;
    }
    EXPECT_EQ(query("SELECT count(*) FROM object WHERE kept IN (1,2,3)"),
              static_cast<std::int64_t>(found.size()));
    for (const auto& [text, name] : found)
      EXPECT_EQ(fs::hard_link_count(ledger_ / "kept" / name), 1u) << name;
  }
}

TEST_F(LedgerTest, ASecondNameThatACrashLeftIsTakenBack) {
  write_text(grant_ / "old", "precious");
  Located object = located("old"), root = located("");
  {
    auto ledger = open_ledger();
    auto done = ledger->keep_all(root, "old", object, Ledger::Loss::replaced);
    ASSERT_EQ(done.error, 0);
    ASSERT_EQ(fs::hard_link_count(grant_ / "old"), 2u);
    // Here the process dies: nothing was renamed over it.
  }
  auto ledger = open_ledger();
  EXPECT_EQ(fs::hard_link_count(grant_ / "old"), 1u);
  EXPECT_EQ(ledger->objects_kept(), 0u);
  // So the first write is kept as if nothing had been.
  ASSERT_EQ(ledger->keep_content(located("old")), 0);
  write_text(grant_ / "old", "changed");
  EXPECT_TRUE(is_kept("precious"));
}

TEST_F(LedgerTest, ARowWithoutItsFileIsNotBelieved) {
  write_text(grant_ / "old", "precious");
  {
    auto ledger = open_ledger();
    ASSERT_EQ(ledger->keep_content(located("old")), 0);
  }
  fs::remove_all(ledger_ / "kept");
  auto ledger = open_ledger();
  ASSERT_EQ(ledger->keep_content(located("old")), 0);
  EXPECT_TRUE(is_kept("precious"));
}

TEST_F(LedgerTest, AFileWhoseRowWasLostIsFoundAgainByItsName) {
  write_text(grant_ / "old", "precious");
  {
    auto ledger = open_ledger();
    auto done = ledger->keep_all(located(""), "old", located("old"), Ledger::Loss::removed);
    ASSERT_EQ(done.error, 0);
    ASSERT_TRUE(done.moved_away);
  }
  for (const auto& entry : fs::directory_iterator(ledger_))
    if (entry.path().filename().string().starts_with("journal")) fs::remove(entry.path());
  auto ledger = open_ledger();
  EXPECT_TRUE(is_kept("precious"));
  EXPECT_EQ(ledger->objects_kept(), 1u);
  EXPECT_EQ(query("SELECT count(*) FROM object WHERE path=x'6f6c64' AND removed=1 AND kept=2"), 1);
}

TEST_F(LedgerTest, ARemovalThatACrashCutShortIsFinishedWithTheOldContent) {
  write_text(grant_ / "old", "precious");
  {
    auto ledger = open_ledger();
    ASSERT_EQ(ledger->keep_content(located("old")), 0);
    write_text(grant_ / "old", "changed by the session");
  }
  fs::rename(grant_ / "old", ledger_ / "kept/0000000000000001.m.old");
  auto ledger = open_ledger();
  EXPECT_EQ(kept().size(), 1u);
  EXPECT_TRUE(is_kept("precious"));
  EXPECT_EQ(query("SELECT removed FROM object WHERE id=1"), 1);
}

// As a keeper leaves it that is killed between making something and writing its row.
TEST_F(LedgerTest, WhatWasAnnouncedAndMadeIsTheSessions) {
  fs::create_directories(grant_ / "folder");
  std::string long_name(250, 'n');
  for (const std::string& name : {std::string("made"), long_name}) {
    auto ledger = open_ledger();
    ASSERT_EQ(ledger->announce(located("folder"), name), 0);
    ASSERT_EQ(ledger->announce(located("folder"), name), 0) << "the last one counts";
    ASSERT_TRUE(fs::create_directory(grant_ / "folder" / name));
    ledger.reset();
    auto object = located("folder/" + name);
    EXPECT_FALSE(open_ledger()->subject(object).pre_existing);
    EXPECT_EQ(query("SELECT count(*) FROM object WHERE created=1 AND removed=0"), name == long_name ? 2 : 1);
  }
}

TEST_F(LedgerTest, WhatWasNotMadeByTheSessionIsNotItsOwn) {
  fs::create_directories(grant_ / "folder");
  {
    auto ledger = open_ledger();
    ASSERT_EQ(ledger->announce(located("folder"), "refused"), 0);
    ledger->forget_announced();
  }
  ASSERT_TRUE(fs::create_directory(grant_ / "folder/refused"));
  EXPECT_TRUE(open_ledger()->subject(located("folder/refused")).pre_existing);
  // In another folder under the same path.
  {
    auto ledger = open_ledger();
    ASSERT_EQ(ledger->announce(located("folder"), "made"), 0);
  }
  fs::rename(grant_ / "folder", grant_ / "elsewhere");
  fs::create_directories(grant_ / "folder/made");
  EXPECT_TRUE(open_ledger()->subject(located("folder/made")).pre_existing);
  EXPECT_EQ(query("SELECT count(*) FROM object"), 0);
}

// As an undo keeps what it is about to rewrite.
TEST_F(LedgerTest, ManyAreKeptTogetherAndTheLatestOfEach) {
  for (const char* name : {"a", "b", "large", "gone"})
    write_text(grant_ / name, std::string("content of ") + name);
  write_text(grant_ / "large", std::string(1 << 20, 'x'));
  UniqueFd root = at();
  std::vector<Ledger::Place> places;
  for (const char* name : {"a", "large", "gone", "b"})
    places.push_back({name, locate_beneath(root.get(), name)->identity()});
  std::filesystem::remove(grant_ / "gone");
  write_text(grant_ / "gone", "another file");
  auto ledger = Ledger::open(ledger_, {.quota_bytes = 1 << 19}, root.get(), 1);
  ASSERT_TRUE(ledger) << ledger.error().message;
  auto kept = (*ledger)->keep_contents(places);
  EXPECT_EQ(kept.size(), 2u) << "without what is too large and what is another file";
  EXPECT_TRUE(is_kept("content of a") && is_kept("content of b") && !is_kept("another file"));
  EXPECT_EQ((*ledger)->objects_kept(), 2u);
  EXPECT_EQ((*ledger)->keep_content(*locate_beneath(root.get(), "large")), EDQUOT);
  write_text(grant_ / "a", "the host was here");
  auto now = locate_beneath(root.get(), "a");
  ASSERT_TRUE(now && kept.contains(now->identity()));
  EXPECT_FALSE(unchanged(kept.at(now->identity()), now->attributes));
  EXPECT_EQ((*ledger)->keep_content_again(*now), 0);
  EXPECT_TRUE(is_kept("the host was here") && !is_kept("content of a"));
  // Opened again, all of it is known.
  ledger->reset();
  EXPECT_EQ(query("SELECT count(*) FROM object WHERE epoch=1 AND kept IN (1,3)"), 2);
  ledger = Ledger::open(ledger_, {}, root.get(), 1);
  ASSERT_TRUE(ledger) << ledger.error().message;
  EXPECT_EQ((*ledger)->keep_content(*locate_beneath(root.get(), "b")), 0);
  EXPECT_EQ(this->kept().size(), 2u);
}

TEST_F(LedgerTest, UnfinishedCopiesAreThrownAway) {
  { open_ledger(); }
  write_text(ledger_ / "kept/unfinished.0000000000000001", "half");
  write_text(ledger_ / "kept/0000000000000007.c.never-recorded", "whole, but nothing was changed after it");
  auto ledger = open_ledger();
  EXPECT_TRUE(fs::is_empty(ledger_ / "kept"));
}

TEST_F(LedgerTest, AnObjectThatIsSwappedAtTheLastMomentIsNotRemoved) {
  write_text(grant_ / "name", "decided upon");
  Located object = located("name"), root = located("");
  fs::remove(grant_ / "name");
  write_text(grant_ / "name", "put there by the host since");
  auto ledger = open_ledger();
  auto done = ledger->keep_all(root, "name", object, Ledger::Loss::removed);
  EXPECT_NE(done.error, 0);
  EXPECT_FALSE(done.moved_away);
  EXPECT_EQ(read_text(grant_ / "name"), "put there by the host since");
  EXPECT_TRUE(kept().empty());
}

TEST_F(LedgerTest, WhatTheHostPutsUnderTheNameOfTheSessionsOwnAtTheLastMomentIsNotRemoved) {
  auto ledger = open_ledger();
  write_text(grant_ / "name", "the session's");
  Located object = located("name"), root = located("");
  ASSERT_EQ(ledger->add_created(object), 0);
  // The keeper has looked and decided; now the host saves by renaming.
  write_text(outside_ / "saved", "the host's");
  fs::rename(outside_ / "saved", grant_ / "name");
  EXPECT_EQ(ledger->remove_name(root, "name", object), EBUSY);
  EXPECT_EQ(read_text(grant_ / "name"), "the host's");
  EXPECT_TRUE(kept().empty());
  // What is still what was looked at goes.
  Located hosts = located("name");
  EXPECT_EQ(ledger->remove_name(root, "name", hosts), 0);
  EXPECT_FALSE(fs::exists(grant_ / "name"));
  EXPECT_TRUE(kept().empty());
}

TEST_F(LedgerTest, WhatTheSessionMadeIsKnownAfterAKillWithoutRows) {
  start(Mode::rw);
  for (const char* name : {"made", "moved", "gone"}) create_with("", name, name);
  ASSERT_EQ(unlink("", "gone").error, 0);
  ASSERT_EQ(rename("", "moved", "", "moved2").error, 0);
  keeper_->child->kill(SIGKILL);
  keeper_->child->wait();
  auto ledger = open_ledger();
  EXPECT_FALSE(ledger->subject(located("made")).pre_existing);
  EXPECT_FALSE(ledger->subject(located("moved2")).pre_existing);
  EXPECT_EQ(query("SELECT count(*) FROM object WHERE created=1"), 2);
  EXPECT_EQ(query("SELECT count(*) FROM object WHERE path=x'6d6f76656432'"), 1) << "moved2";
  auto batch = read_recent(ledger_);
  ASSERT_TRUE(batch);
  EXPECT_TRUE(batch->entries.empty()) << "they are rows now";
}

TEST_F(LedgerTest, DamagedLatestEntriesEndTheBatch) {
  write_text(grant_ / "a", "a");
  write_text(grant_ / "b", "b");
  auto ledger = open_ledger();
  ASSERT_EQ(ledger->add_created(located("a")), 0);
  ASSERT_EQ(ledger->add_created(located("b")), 0);
  auto bytes = read_text(ledger_ / "recent");
  ledger.reset();
  auto read_back = [&](const std::string& text) {
    write_text(outside_ / "recent", text);
    auto batch = read_recent(outside_);
    EXPECT_TRUE(batch);
    return batch ? batch->entries.size() : 99;
  };
  std::size_t entries = read_back(bytes);
  ASSERT_LE(entries, 2u);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_LE(read_back(bytes.substr(0, size)), entries);
  for (std::size_t at = 16; at < bytes.size(); ++at) {
    auto other = bytes;
    other[at] = static_cast<char>(other[at] ^ 0x40);
    EXPECT_LE(read_back(other), entries - (entries > 0));
  }
  EXPECT_EQ(read_back(""), 0u);
}

TEST(KeptFileName, FitsAndTellsThePath) {
  EXPECT_EQ(kept_file_name(42, true, "docs/a b.txt"), "000000000000002a.m.docs%2fa b.txt");
  EXPECT_EQ(kept_file_name(1, false, "a%\n"), "0000000000000001.c.a%25%0a");
  EXPECT_LE(kept_file_name(1, false, std::string(4000, '/')).size(), 255u);
}

TEST(SymlinkEscapes, ByItsWords) {
  struct {
    const char* path;
    const char* target;
    bool escapes;
  } table[] = {{"a", "b", false},        {"a", "../b", true},           {"d/a", "../b", false},
               {"d/a", "../../b", true}, {"a", "/etc", true},           {"a", "d/../b", false},
               {"a", "d/../../b", true}, {"d/e/a", "../../../x", true}, {"d/a", "./../b", false},
               {"a", "..", true},        {"d/a", "..", false},          {"a", ".", false}};
  for (const auto& row : table)
    EXPECT_EQ(symlink_escapes(row.path, row.target), row.escapes) << row.path << " -> " << row.target;
}

}  // namespace
}  // namespace anchorhold::mounts::testing
