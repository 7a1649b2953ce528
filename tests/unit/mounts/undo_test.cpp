// After an undo the tree is what it was: by content, modes, times, xattrs and links, whatever the session
// did.
#include <atomic>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>

#include "ledger.h"
#include "mounts/review.h"
#include "random_session.h"
#include "restore.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

class UndoTest : public RandomSessionTest {
 protected:
  // As a session begins it: the keeper's part of the ledger is beside what says which folder it is.
  void begin(Mode mode, std::vector<std::string> arguments = {}) {
    Grant grant;
    grant.host_path = grant_;
    grant.root = at();
    grant.name = "grant";
    grant.mode = mode;
    ASSERT_TRUE(write_ledger_place(session_ / "grant", grant, 0));
    start(mode, std::move(arguments));
  }
  void SetUp() override {
    RandomSessionTest::SetUp();
    use_session_folder();
  }
  void use_session_folder() {
    session_ = directory_->path() / "session";
    fs::remove_all(session_);
    ledger_ = keepers_folder(session_ / "grant");
    fs::create_directories(ledger_);
  }
  LedgerPlace place() {
    auto places = ledgers_of_session(session_);
    EXPECT_TRUE(places && places->size() == 1u);
    return places && !places->empty() ? places->front() : LedgerPlace{};
  }
  Result<UndoOutcome> undo(const UndoOptions& options = {}) { return mounts::undo(place(), options); }
  static void expect_all_done(const Result<UndoOutcome>& outcome) {
    ASSERT_TRUE(outcome) << outcome.error().message;
    for (const auto& refusal : outcome->refused) ADD_FAILURE() << refusal.path << ": " << refusal.reason;
  }
  std::vector<std::string> refusals(const Result<UndoOutcome>& outcome) {
    std::vector<std::string> paths;
    EXPECT_TRUE(outcome) << outcome.error().message;
    if (outcome)
      for (const auto& refusal : outcome->refused) paths.push_back(refusal.path);
    return paths;
  }
  std::map<std::string, Change> review(bool diff = false) {
    auto seen = mounts::review(place(), {.diff = diff, .paths = {}});
    EXPECT_TRUE(seen) << seen.error().message;
    std::map<std::string, Change> changes;
    if (seen)
      for (const auto& change : seen->changes) changes.emplace(change.path, change);
    return changes;
  }
  // Changes a file as editors do, not as a program that keeps the time of the last change.
  void host_writes(const std::string& path, std::string_view text) { write_text(grant_ / path, text); }

  fs::path session_;
};

class AnySession : public UndoTest, public ::testing::WithParamInterface<Mode> {};

TEST_P(AnySession, IsUndoneRedoneAndUndoneAgain) {
  for (std::uint64_t round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("ANCHORHOLD_TEST_SEED={} round {}", seed(), round));
    begin_round(round);
    use_session_folder();
    make_tree(5 + any(40));
    auto before = snapshot_of(grant_);
    begin(GetParam());
    for (std::size_t i = 3 + any(60); i > 0; --i) act();
    end_keeper();
    auto after = snapshot_of(grant_);
    ASSERT_TRUE(mounts::review(place(), {.diff = true, .paths = {}}));
    EXPECT_EQ(difference(after, snapshot_of(grant_)), "") << "after the review";
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "") << "after the undo";
    EXPECT_TRUE(review().empty()) << review().begin()->first;
    if (HasFailure()) break;
    auto again = undo();
    expect_all_done(again);
    EXPECT_TRUE(again->steps.empty()) << again->steps.front().path;
    if (after == before) continue;
    expect_all_done(undo({.redo = true}));
    EXPECT_EQ(difference(after, snapshot_of(grant_)), "") << "after the redo";
    if (HasFailure()) break;
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "") << "after the second undo";
  }
}

// Whatever the keeper was doing when it was killed.
TEST_P(AnySession, IsUndoneAfterItsKeeperWasKilled) {
  for (std::uint64_t round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("ANCHORHOLD_TEST_SEED={} round {}", seed(), round));
    begin_round(1000 + round);
    use_session_folder();
    make_tree(5 + any(40));
    auto before = snapshot_of(grant_);
    begin(GetParam());
    std::atomic<std::size_t> acted{0};
    std::size_t deadly = any(60);
    std::thread killer([&] {
      while (acted < deadly) std::this_thread::yield();
      keeper_->child->kill(SIGKILL);
    });
    while (acted < 60) {
      act();
      ++acted;
    }
    killer.join();
    client_ = std::make_unique<KeeperClient>(UniqueFd());
    keeper_.reset();
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  }
}

// Nobody noted what the folder had become, and its time says nothing of when it was set.
TEST_P(AnySession, TimesToComeAreUndoneAfterItsKeeperWasKilled) {
  fs::create_directory(grant_ / "folder");
  write_text(grant_ / "file", "text");
  for (const char* name : {"folder", "file"}) age(grant_ / name);
  age(grant_);
  auto before = snapshot_of(grant_);
  begin(GetParam());
  for (const char* name : {"folder", "file", ""}) {
    auto request = make_request(Verb::set_attributes);
    request.valid = valid_flag::modify_time;
    request.modify_time = {4'000'000'000, 5, 0};
    ASSERT_EQ(ask(request, {at(name).get()}).error, 0) << name;
  }
  keeper_->child->kill(SIGKILL);
  keeper_->child->wait();
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

// An undo that is killed may be run again, and ends at the same tree.
TEST_P(AnySession, IsUndoneByAnUndoThatWasKilled) {
  for (std::uint64_t round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("ANCHORHOLD_TEST_SEED={} round {}", seed(), round));
    begin_round(2000 + round);
    use_session_folder();
    make_tree(5 + any(40));
    auto before = snapshot_of(grant_);
    begin(GetParam());
    for (std::size_t i = 3 + any(60); i > 0; --i) act();
    end_keeper();
    for (int deaths = 0; deaths < 4; ++deaths) {
      UniqueFd root = at();
      auto said = make_pipe();
      ASSERT_TRUE(said);
      SpawnSpec spawn;
      spawn.argv = {std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold-ledger", "undo", "--ledger",
                    ledger_.string()};
      spawn.descriptors = {{2, 2}, {root.get(), ledger_fd::root}, {said->write_end.get(), ledger_fd::output}};
      auto child = Child::spawn(spawn);
      ASSERT_TRUE(child);
      // Somewhere between its first moment and its end.
      (void)child->wait(std::chrono::milliseconds(any(60)));
      child->kill(SIGKILL);
      child->wait();
    }
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, AnySession, ::testing::Values(Mode::rw, Mode::rw_no_delete),
                         [](const auto& mode) { return mode.param == Mode::rw ? "rw" : "rw_no_delete"; });

TEST_F(UndoTest, WhatSomebodyElseChangedSinceIsLeftAlone) {
  for (const char* name : {"edited", "touched", "untouched", "replaced", "moved", "gone"})
    write_text(grant_ / name, "before");
  begin(Mode::rw);
  for (const char* name : {"edited", "touched", "untouched", "replaced", "moved", "gone"}) {
    auto opened = open_write(name, open_flag::truncate);
    ASSERT_EQ(opened.error, 0);
    ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("session", 7))));
  }
  create_with("", "made", "by the session");
  end_keeper();
  host_writes("edited", "by the host");
  host_writes("made", "and edited");
  fs::last_write_time(grant_ / "touched", fs::file_time_type::clock::now());
  fs::remove(grant_ / "replaced");
  write_text(grant_ / "replaced", "another file");
  fs::rename(grant_ / "moved", grant_ / "moved away");
  fs::remove(grant_ / "gone");

  auto planned = undo({.dry_run = true});
  EXPECT_THAT(refusals(planned),
              ::testing::UnorderedElementsAre("edited", "made", "replaced", "moved away", "gone"));
  EXPECT_EQ(read_text(grant_ / "untouched"), "session") << "a dry run changes nothing";
  auto done = undo();
  EXPECT_THAT(refusals(done),
              ::testing::UnorderedElementsAre("edited", "made", "replaced", "moved away", "gone"));
  EXPECT_EQ(read_text(grant_ / "untouched"), "before");
  EXPECT_EQ(read_text(grant_ / "touched"), "before") << "the same content by its hash";
  EXPECT_EQ(read_text(grant_ / "edited"), "by the host");
  EXPECT_EQ(read_text(grant_ / "made"), "and edited");
  EXPECT_EQ(read_text(grant_ / "replaced"), "another file");

  ASSERT_TRUE(undo({.force = true}));
  for (const char* name : {"edited", "replaced", "moved", "gone"})
    EXPECT_EQ(read_text(grant_ / name), "before") << name;
  EXPECT_FALSE(fs::exists(grant_ / "made"));
  // What was forced away is not lost either.
  expect_all_done(undo({.redo = true}));
  EXPECT_EQ(read_text(grant_ / "edited"), "by the host");
  EXPECT_EQ(read_text(grant_ / "made"), "and edited");
  EXPECT_EQ(read_text(grant_ / "replaced"), "another file");
}

// An undo writes to the ledger too, but that is not the session's last word.
TEST_F(UndoTest, WhatWasChangedAfterAKeeperWasKilledIsLeftAloneEveryTime) {
  write_text(grant_ / "edited", "before");
  write_text(grant_ / "untouched", "before");
  begin(Mode::rw);
  for (const char* name : {"edited", "untouched"}) {
    auto opened = open_write(name, open_flag::truncate);
    ASSERT_EQ(opened.error, 0);
    ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("session", 7))));
  }
  keeper_->child->kill(SIGKILL);
  keeper_->child->wait();
  // Until it is clearly later than all that.
  auto written = fs::last_write_time(ledger_ / "journal.db-wal");
  do host_writes("edited", "by the host");
  while (fs::last_write_time(grant_ / "edited") < written + std::chrono::milliseconds(100));
  for (int time = 0; time < 3; ++time) {
    EXPECT_THAT(refusals(undo()), ::testing::ElementsAre("edited"));
    EXPECT_EQ(read_text(grant_ / "edited"), "by the host");
    EXPECT_EQ(read_text(grant_ / "untouched"), "before");
  }
  expect_all_done(undo({.force = true}));
  EXPECT_EQ(read_text(grant_ / "edited"), "before");
}

TEST_F(UndoTest, OnlyThePathsThatWereAskedFor) {
  fs::create_directories(grant_ / "a/deep");
  write_text(grant_ / "a/deep/one", "1");
  write_text(grant_ / "a/deep/two", "2");
  write_text(grant_ / "b", "3");
  begin(Mode::rw);
  remove_all("a");
  ASSERT_EQ(unlink("", "b").error, 0);
  end_keeper();
  expect_all_done(undo({.paths = {"a/deep/one"}}));
  EXPECT_EQ(read_text(grant_ / "a/deep/one"), "1") << "with the folders it needs";
  EXPECT_FALSE(fs::exists(grant_ / "a/deep/two"));
  EXPECT_FALSE(fs::exists(grant_ / "b"));
  expect_all_done(undo());
  EXPECT_EQ(read_text(grant_ / "a/deep/two"), "2");
  EXPECT_EQ(read_text(grant_ / "b"), "3");
}

TEST_F(UndoTest, AFolderOfTheSessionsStaysForWhatOthersPutThere) {
  begin(Mode::rw);
  ASSERT_EQ(mkdir("", "new").error, 0);
  create_with("new", "mine", "x");
  end_keeper();
  write_text(grant_ / "new/theirs", "y");
  auto outcome = undo();
  expect_all_done(outcome);
  EXPECT_FALSE(fs::exists(grant_ / "new/mine"));
  EXPECT_EQ(read_text(grant_ / "new/theirs"), "y");
  ASSERT_FALSE(outcome->steps.empty());
  EXPECT_EQ(outcome->steps.back().kind, UndoStep::Kind::left_in_place);
}

TEST_F(UndoTest, NothingIsDoneThroughSwappedFolders) {
  fs::create_directories(grant_ / "folder");
  write_text(grant_ / "folder/file", "before");
  write_text(outside_ / "file", "not ours");
  begin(Mode::rw);
  ASSERT_EQ(unlink("folder", "file").error, 0);
  create_with("folder", "made", "x");
  end_keeper();
  fs::rename(grant_ / "folder", outside_ / "folder");
  fs::create_symlink(outside_, grant_ / "folder");
  write_text(outside_ / "made", "not ours either");
  auto outcome = undo({.force = true});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(read_text(outside_ / "file"), "not ours");
  EXPECT_EQ(read_text(outside_ / "made"), "not ours either");
  EXPECT_TRUE(fs::exists(outside_ / "folder/made")) << "it is out of reach";
  EXPECT_FALSE(fs::exists(outside_ / "folder/file"));
}

TEST_F(UndoTest, AnotherFolderInThePlaceOfTheGrantedOneIsNotTouched) {
  begin(Mode::rw);
  create_with("", "made", "x");
  end_keeper();
  fs::rename(grant_, directory_->path() / "elsewhere");
  fs::create_directory(grant_);
  write_text(grant_ / "made", "x");
  auto outcome = undo({.force = true});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::failed_precondition);
  EXPECT_TRUE(fs::exists(grant_ / "made"));
}

TEST_F(UndoTest, OneAtATime) {
  begin(Mode::rw);
  create_with("", "made", "x");
  end_keeper();
  auto lock = FileLock::acquire(session_ / "grant/undo.lock", FileLock::Wait::no);
  ASSERT_TRUE(lock);
  auto outcome = undo();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::unavailable);
}

TEST_F(UndoTest, ThereIsNothingToTakeBackBeforeAnUndo) {
  begin(Mode::rw);
  create_with("", "made", "x");
  end_keeper();
  auto outcome = undo({.redo = true});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::not_found);
}

TEST_F(UndoTest, ASingleFile) {
  write_text(grant_ / "only", "before");
  write_text(grant_ / "other", "not granted");
  auto before = snapshot_of(grant_);
  Grant grant;
  grant.host_path = grant_ / "only";
  grant.root = at();
  grant.only_file = "only";
  grant.name = "only";
  grant.mode = Mode::rw;
  ASSERT_TRUE(write_ledger_place(session_ / "grant", grant, 0));
  start(Mode::rw, {"--only-file", "only"});
  auto opened = open_write("only", open_flag::truncate);
  ASSERT_EQ(opened.error, 0);
  ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("after", 5))));
  opened.descriptor.reset();
  ASSERT_EQ(chmod("only", 0600).error, 0);
  end_keeper();
  EXPECT_EQ(review().at("only").kind, Change::Kind::modified);
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

TEST_F(UndoTest, AReviewSaysTheNetEffectWithRisksFirst) {
  fs::create_directories(grant_ / ".git/hooks");
  write_text(grant_ / "text", "one\ntwo\nthree\n");
  write_text(grant_ / "renamed", "a longer text, so that it is known again\n");
  write_text(grant_ / "copied", "another longer text, so that it is known again\n");
  write_text(grant_ / "saved", "saved by an editor\n");
  write_text(grant_ / "gone", "x");
  write_text(grant_ / "same", "x");
  ASSERT_EQ(::chmod((grant_ / "same").c_str(), 0644), 0);
  begin(Mode::rw);
  auto opened = open_write("text", open_flag::truncate);
  ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("one\n2\nthree\n", 12))));
  create_with(".git/hooks", "pre-commit", "#!/bin/sh\n");
  ASSERT_EQ(symlink("", "escape", "../../etc").error, 0);
  ASSERT_EQ(rename("", "renamed", "", "new name").error, 0);
  create_with("", "moved", "another longer text, so that it is known again\n");
  ASSERT_EQ(unlink("", "copied").error, 0);
  create_with("", "save.tmp", "saved by an editor, changed\n");
  ASSERT_EQ(rename("", "save.tmp", "", "saved").error, 0);
  ASSERT_EQ(unlink("", "gone").error, 0);
  ASSERT_EQ(chmod("same", 0600).error, 0);
  create_with("", "here and gone", "x");
  ASSERT_EQ(unlink("", "here and gone").error, 0);
  create_with("", "binary", std::string("\0\1\2", 3));
  end_keeper();

  auto seen = mounts::review(place(), {.diff = true, .paths = {}});
  ASSERT_TRUE(seen) << seen.error().message;
  std::vector<std::string> order;
  for (const auto& change : seen->changes) order.push_back(change.path);
  EXPECT_EQ(order, (std::vector<std::string>{".git/hooks/pre-commit", "escape", "binary", "gone", "moved",
                                             "new name", "same", "saved", "text"}));
  auto changes = review(true);
  EXPECT_EQ(changes[".git/hooks/pre-commit"].risk, Change::Risk::runs_here);
  EXPECT_EQ(changes["escape"].risk, Change::Risk::leads_outside);
  EXPECT_EQ(changes["text"].diff, "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n");
  EXPECT_EQ(changes["new name"].kind, Change::Kind::renamed);
  EXPECT_EQ(changes["new name"].old_path, "renamed");
  EXPECT_EQ(changes["moved"].kind, Change::Kind::renamed);
  EXPECT_EQ(changes["moved"].old_path, "copied");
  EXPECT_EQ(changes["saved"].kind, Change::Kind::modified);
  EXPECT_NE(changes["saved"].diff.find("+saved by an editor, changed\n"), std::string::npos);
  EXPECT_EQ(changes["gone"].kind, Change::Kind::deleted);
  EXPECT_EQ(changes["same"].kind, Change::Kind::attributes);
  EXPECT_FALSE(changes["binary"].text);
  EXPECT_GT(seen->bytes_kept, 0u);
}

TEST_F(UndoTest, ManyDeletionsAreAThingToLookAt) {
  for (int i = 0; i < 30; ++i) write_text(grant_ / std::to_string(i), std::to_string(i));
  begin(Mode::rw);
  for (int i = 0; i < 30; ++i) ASSERT_EQ(unlink("", std::to_string(i)).error, 0);
  end_keeper();
  for (const auto& [path, change] : review()) EXPECT_EQ(change.risk, Change::Risk::bulk) << path;
}

// What is put back is synced all together.
TEST_F(UndoTest, AnUndoOfThousandsOfRemovals) {
  for (int i = 0; i < 5000; ++i) {
    fs::create_directories(grant_ / std::to_string(i % 20));
    write_text(grant_ / std::to_string(i % 20) / std::to_string(i), std::to_string(i) + " as it was");
  }
  auto before = snapshot_of(grant_);
  begin(Mode::rw, {"--bulk-changes", "100000"});
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(unlink(std::to_string(i % 20), std::to_string(i)).error, 0) << i;
  end_keeper();
  auto after = snapshot_of(grant_);
  auto begun = std::chrono::steady_clock::now();
  expect_all_done(undo());
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
  std::printf("[          ] %.1f s for 5,000 files\n", taken.count());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  expect_all_done(undo({.redo = true}));
  EXPECT_EQ(difference(after, snapshot_of(grant_)), "");
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

// What is rewritten is kept all together, too.
TEST_F(UndoTest, AnUndoOfThousandsOfRewrites) {
  for (int i = 0; i < 5000; ++i) {
    fs::create_directories(grant_ / std::to_string(i % 20));
    write_text(grant_ / std::to_string(i % 20) / std::to_string(i), std::to_string(i) + " as it was");
  }
  auto before = snapshot_of(grant_);
  begin(Mode::rw, {"--bulk-changes", "100000"});
  for (int i = 0; i < 5000; ++i) {
    auto opened = open_write(std::to_string(i % 20) + "/" + std::to_string(i), open_flag::truncate);
    ASSERT_EQ(opened.error, 0) << i;
    ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("session", 7))));
  }
  end_keeper();
  auto after = snapshot_of(grant_);
  auto begun = std::chrono::steady_clock::now();
  expect_all_done(undo());
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
  std::printf("[          ] %.1f s for 5,000 files\n", taken.count());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  expect_all_done(undo({.redo = true}));
  EXPECT_EQ(difference(after, snapshot_of(grant_)), "");
}

// A program of the host may wait in them: the very ones come back, and after them their like.
TEST_F(UndoTest, PipesAndSocketsOfTheHostComeBack) {
  for (const char* name : {"pipe", "renamed"}) ASSERT_EQ(mkfifo((grant_ / name).c_str(), 0640), 0);
  UniqueFd door(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  UniqueFd folder = at();
  const std::string path = fmt::format("/proc/self/fd/{}/door", folder.get());
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  auto size = static_cast<socklen_t>(sizeof address);
  ASSERT_EQ(::bind(door.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(door.get(), 1), 0);
  for (const char* name : {"pipe", "renamed", "door"}) age(grant_ / name);
  age(grant_);
  auto before = snapshot_of(grant_);
  begin(Mode::rw);
  ASSERT_EQ(chmod("pipe", 0600).error, 0);
  ASSERT_EQ(unlink("", "pipe").error, 0);
  ASSERT_EQ(unlink("", "door").error, 0);
  ASSERT_EQ(chmod("renamed", 0600).error, 0);
  ASSERT_EQ(rename("", "renamed", "", "elsewhere").error, 0);
  create_with("", "pipe", "a file in its place");
  end_keeper();
  auto after = snapshot_of(grant_);
  EXPECT_FALSE(after.contains("door"));
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  UniqueFd visitor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(visitor.get(), reinterpret_cast<sockaddr*>(&address), size), 0) << strerror(errno);
  expect_all_done(undo({.redo = true}));
  EXPECT_EQ(difference(after, snapshot_of(grant_)), "");
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

// Its owner may always undo what the session closed to them.
TEST_F(UndoTest, WhatTheSessionClosedIsUndone) {
  for (const char* name : {"old", "twice"}) write_text(grant_ / name, "before");
  fs::create_hard_link(grant_ / "twice", grant_ / "second");
  auto before = snapshot_of(grant_);
  begin(Mode::rw);
  ASSERT_EQ(mkdir("", "made").error, 0);
  create_with("made", "file", "x");
  ASSERT_EQ(ask(make_request(Verb::link, "second"), {at("made/file").get(), at("made").get()}).error, 0);
  for (const char* name : {"old", "twice", "made/file"}) {
    auto opened = open_write(name, open_flag::truncate);
    ASSERT_EQ(opened.error, 0) << name;
    ASSERT_EQ(chmod(name, 0).error, 0) << name;
  }
  ASSERT_EQ(chmod("made", 0500).error, 0);
  ASSERT_EQ(unlink("", "second").error, 0);
  end_keeper();
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

// In a person's own folder may lie what is somebody else's. They can remove it, so a session can, and so it
// must come back, although nobody but its owner could give it its mode and times.
TEST_F(UndoTest, FilesOfOthersComeBack) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of others";
  constexpr uid_t person = 4242, other = 4243;
  for (const auto& [name, mode] : {std::pair("readable", 0644), {"unreadable", 0600}}) {
    write_text(grant_ / name, std::string("before ") + name);
    ASSERT_EQ(::chmod((grant_ / name).c_str(), static_cast<mode_t>(mode)), 0);
    ASSERT_EQ(chown((grant_ / name).c_str(), other, other), 0);
    age(grant_ / name);
  }
  for (const auto& folder : {grant_, ledger_, directory_->path()})
    ASSERT_EQ(chown(folder.c_str(), person, person), 0);
  fs::permissions(ledger_.parent_path(), fs::perms::all);
  fs::permissions(session_, fs::perms::all);
  age(grant_);
  auto before = snapshot_of(grant_);
  pid_t child = fork();
  if (child == 0) {
    auto work = [&] {
      if (setresgid(person, person, person) != 0 || setresuid(person, person, person) != 0) return 10;
      UniqueFd root(open(grant_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      auto ledger = Ledger::open(ledger_, {}, root.get());
      if (!ledger) return 11;
      for (const char* name : {"readable", "unreadable"}) {
        auto folder = locate_beneath(root.get(), ""), file = locate_beneath(root.get(), name);
        if (!folder || !file || (*ledger)->record(*folder) != 0) return 12;
        auto kept = (*ledger)->keep_all(*folder, name, *file, Ledger::Loss::removed);
        if (kept.error != 0 || !kept.moved_away) return 13;
        (*ledger)->removed(*folder, name, *file);
      }
      ledger->reset();
      RestoreSpec spec;
      spec.root = root.get();
      spec.ledger = ledger_;
      auto restored = restore(spec);
      return restored && restored->refused.empty() ? 0 : 14;
    };
    _exit(work());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

TEST_F(UndoTest, TimesOfAnyYearComeBack) {
  const std::pair<const char*, timespec> times[] = {
      {"far", {.tv_sec = 15'000'000'000, .tv_nsec = 123'456'789}},
      {"beyond 2262", {.tv_sec = 9'223'372'037, .tv_nsec = 1}},
      {"before 1970", {.tv_sec = -1'500'000'000, .tv_nsec = 999'999'999}}};
  fs::create_directory(grant_ / "folder");
  for (const auto& [name, time] : times) {
    write_text(grant_ / name, "before");
    write_text(grant_ / (std::string("removed ") + name), "before");
    const timespec both[2] = {time, time};
    ASSERT_EQ(utimensat(AT_FDCWD, (grant_ / name).c_str(), both, 0), 0);
    ASSERT_EQ(utimensat(AT_FDCWD, (grant_ / (std::string("removed ") + name)).c_str(), both, 0), 0);
    ASSERT_EQ(utimensat(AT_FDCWD, (grant_ / "folder").c_str(), both, 0), 0);
  }
  const timespec far[2] = {times[0].second, times[0].second};
  ASSERT_EQ(utimensat(AT_FDCWD, (grant_ / "folder").c_str(), far, 0), 0);
  auto before = snapshot_of(grant_);
  begin(Mode::rw);
  for (const auto& [name, time] : times) {
    auto opened = open_write(name, open_flag::truncate);
    ASSERT_EQ(opened.error, 0);
    ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("session", 7))));
    ASSERT_EQ(unlink("", std::string("removed ") + name).error, 0);
  }
  create_with("folder", "new", "x");
  end_keeper();
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

// What had to be put out of the way for a moment is told by the name that a person knows.
TEST_F(UndoTest, StepsAreToldByTheNamesTheyHad) {
  write_text(grant_ / "file", "before");
  fs::create_directory(grant_ / "folder");
  begin(Mode::rw);
  ASSERT_EQ(unlink("", "file").error, 0);
  ASSERT_EQ(mkdir("", "file").error, 0);
  create_with("file", "inside", "x");
  ASSERT_EQ(rmdir("", "folder").error, 0);
  create_with("", "folder", "x");
  end_keeper();
  auto done = undo();
  expect_all_done(done);
  std::vector<std::string> removed;
  for (const auto& step : done->steps)
    if (step.kind == UndoStep::Kind::removed) removed.push_back(step.path);
  EXPECT_THAT(removed, ::testing::UnorderedElementsAre("file/inside", "file", "folder"));
}

TEST_F(UndoTest, NamesOfAnyBytesComeThrough) {
  std::string name = "n\xff\n\x1b[31m";
  begin(Mode::rw);
  create_with("", name, "x");
  end_keeper();
  EXPECT_TRUE(review().contains(name));
  expect_all_done(undo());
  EXPECT_TRUE(fs::is_empty(grant_));
}

}  // namespace
}  // namespace anchorhold::mounts::testing
