// What is not a plain file of the person's own comes back too, and thousands at once.
#include <cstdio>
#include <sys/un.h>
#include <sys/wait.h>

#include "ledger.h"
#include "restore.h"
#include "undo_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

class Thousands : public UndoTest {
 protected:
  static constexpr int count = 5000;
  static std::string folder_of(int i) { return std::to_string(i % 20); }
  void begin_with_files() {
    for (int i = 0; i < count; ++i) {
      fs::create_directories(grant_ / folder_of(i));
      write_text(grant_ / folder_of(i) / std::to_string(i), std::to_string(i) + " as it was");
    }
    before_ = snapshot_of(grant_);
    begin(Mode::rw, {"--bulk-changes", "100000"});
  }
  void end_and_undo() {
    end_keeper();
    auto after = snapshot_of(grant_);
    auto begun = std::chrono::steady_clock::now();
    expect_all_done(undo());
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    std::printf("[          ] %.1f s for %d files\n", taken.count(), count);
    EXPECT_EQ(difference(before_, snapshot_of(grant_)), "");
    expect_all_done(undo({.redo = true}));
    EXPECT_EQ(difference(after, snapshot_of(grant_)), "");
    expect_all_done(undo());
    EXPECT_EQ(difference(before_, snapshot_of(grant_)), "");
  }

 private:
  Snapshot before_;
};

// What is put back is synced all together.
TEST_F(Thousands, OfRemovalsAreUndone) {
  begin_with_files();
  for (int i = 0; i < count; ++i) ASSERT_EQ(unlink(folder_of(i), std::to_string(i)).error, 0) << i;
  end_and_undo();
}

// What is rewritten is kept all together, too.
TEST_F(Thousands, OfRewritesAreUndone) {
  begin_with_files();
  for (int i = 0; i < count; ++i) {
    auto opened = open_write(folder_of(i) + "/" + std::to_string(i), open_flag::truncate);
    ASSERT_EQ(opened.error, 0) << i;
    ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("session", 7))));
  }
  end_and_undo();
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

}  // namespace
}  // namespace anchorhold::mounts::testing
