// What an undo does and leaves alone, and what a review and an undo say of it.
#include "undo_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

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

// What is at the path at this moment lies in the other folder, and goes back with it.
TEST_F(UndoTest, WhatWasInFoldersThatTookEachOthersPlaceComesBack) {
  for (const char* name : {"a/mine", "b/mine"}) {
    fs::create_directories((grant_ / name).parent_path());
    write_text(grant_ / name, name);
  }
  auto before = snapshot_of(grant_);
  begin(Mode::rw);
  ASSERT_EQ(rename("", "a", "", "b", rename_flag::exchange).error, 0);
  ASSERT_EQ(unlink("b", "mine").error, 0);
  end_keeper();
  auto after = snapshot_of(grant_);
  EXPECT_TRUE(refusals(undo({.dry_run = true})).empty());
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  expect_all_done(undo({.redo = true}));
  EXPECT_EQ(difference(after, snapshot_of(grant_)), "");
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
