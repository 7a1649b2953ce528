// Ways out of the granted folder, tried through real requests while the host changes things underneath.
#include <atomic>
#include <sys/mount.h>
#include <sys/stat.h>
#include <thread>

#include "reader_fixture.h"

namespace anchorhold::mounts {
namespace {

using testing::bytes_of;
using testing::FuseGuest;
using testing::read_text;
using testing::ReaderTest;
using testing::write_text;

class ReaderEscape : public ReaderTest {
 protected:
  std::filesystem::path outside() const { return directory_->path() / "outside"; }
};

TEST_F(ReaderEscape, NamesThatAreNoNamesAreRefusedAndReported) {
  write_text(outside() / "secret", "secret");
  std::filesystem::create_directory(grant_ / "folder");
  boot(Mode::rw);
  auto folder = guest_->node("folder");
  for (const char* name :
       {"..", ".", "", "../outside", "../outside/secret", "folder/..", "/etc/passwd", "a/b"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(guest_->lookup(FUSE_ROOT_ID, name).error, EINVAL);
    EXPECT_EQ(guest_->lookup(folder, name).error, EINVAL);
    EXPECT_EQ(guest_->create(folder, name, O_WRONLY | O_CREAT).error, EINVAL);
    EXPECT_EQ(guest_->make_folder(folder, name).error, EINVAL);
    EXPECT_EQ(guest_->ask(FUSE_UNLINK, folder, FuseGuest::name(name)).error, EINVAL);
    EXPECT_EQ(guest_->ask(FUSE_RMDIR, folder, FuseGuest::name(name)).error, EINVAL);
    EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "folder", folder, name).error, EINVAL);
    EXPECT_EQ(guest_->rename(folder, name, FUSE_ROOT_ID, "x").error, EINVAL);
    EXPECT_EQ(guest_->link(folder, FUSE_ROOT_ID, name).error, EINVAL);
    EXPECT_EQ(guest_->ask(FUSE_SYMLINK, folder, FuseGuest::name(name) + FuseGuest::name("x")).error, EINVAL);
  }
  auto report = report_of(ReportKind::violation);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->path, "..");
  EXPECT_EQ(read_text(outside() / "secret"), "secret");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(outside()), {}), 1);
}

// The host swaps a folder for a symlink out of the grant as fast as it can, while the guest goes through it.
TEST_F(ReaderEscape, ASwappedSymlinkLeadsNowhere) {
  std::filesystem::create_directory(grant_ / "real");
  write_text(grant_ / "real" / "file", "inside");
  write_text(outside() / "file", "outside");
  std::filesystem::create_directory_symlink(outside(), grant_ / "link");
  boot(Mode::rw);
  std::atomic<bool> stop{false};
  std::thread host([&] {
    while (!stop) {
      renameat2(AT_FDCWD, (grant_ / "real").c_str(), AT_FDCWD, (grant_ / "link").c_str(), RENAME_EXCHANGE);
    }
  });
  // Whether the guest got to read it.
  auto read_through = [&](int flags) {
    auto folder = guest_->lookup(FUSE_ROOT_ID, "real");
    EXPECT_TRUE(folder.answered);
    if (folder.error != 0) return false;
    auto file = guest_->lookup(folder.as<fuse_entry_out>().nodeid, "file");
    EXPECT_TRUE(file.answered);
    if (file.error != 0) return false;
    auto node = file.as<fuse_entry_out>().nodeid;
    auto opened = guest_->open(node, flags);
    EXPECT_TRUE(opened.answered);
    if (opened.error != 0) return false;
    auto handle = opened.as<fuse_open_out>().fh;
    EXPECT_EQ(guest_->read(handle, 0, 64).payload, "inside");
    fuse_release_in release{};
    release.fh = handle;
    guest_->ask(FUSE_RELEASE, node, bytes_of(release));
    return true;
  };
  for (int i = 0; i < 3000; ++i) read_through(i % 2 ? O_RDONLY : O_RDWR);
  stop = true;
  host.join();
  // What of it was met in the race is chance; each alone is not.
  auto swap = [&] {
    ASSERT_EQ(
        renameat2(AT_FDCWD, (grant_ / "real").c_str(), AT_FDCWD, (grant_ / "link").c_str(), RENAME_EXCHANGE),
        0);
  };
  if (std::filesystem::is_symlink(grant_ / "real")) swap();
  // The first open may be told to look again.
  EXPECT_TRUE(read_through(O_RDONLY) || read_through(O_RDONLY));
  swap();
  EXPECT_FALSE(read_through(O_RDONLY) || read_through(O_RDONLY));
  EXPECT_EQ(read_text(outside() / "file"), "outside");
}

// A name that was a file when it was looked up is a FIFO when it is opened: opening it would wait for ever.
TEST_F(ReaderEscape, AFileThatBecomesAFifoIsNotOpened) {
  boot(Mode::ro);
  for (int i = 0; i < 50; ++i) {
    auto name = "file" + std::to_string(i);
    write_text(grant_ / name, "x");
    auto node = guest_->node(name);
    ASSERT_NE(node, 0u);
    std::filesystem::remove(grant_ / name);
    ASSERT_EQ(mkfifo((grant_ / name).c_str(), 0644), 0);
    EXPECT_EQ(guest_->open(node, O_RDONLY).error, ESTALE);
    // Who insists gets the file that was looked up, as a host program would that was in the midst of opening.
    auto handle = guest_->handle(node, O_RDONLY);
    EXPECT_EQ(guest_->read(handle, 0, 100).payload, "x");
    guest_->release(handle);
  }
}

TEST_F(ReaderEscape, AnotherFileUnderTheNameIsAnotherNode) {
  write_text(grant_ / "file", "first");
  boot(Mode::ro);
  auto node = guest_->node("file");
  write_text(grant_ / "other", "second");
  std::filesystem::rename(grant_ / "other", grant_ / "file");
  EXPECT_EQ(guest_->open(node, O_RDONLY).error, ESTALE) << "the guest looks the name up again then";
  EXPECT_NE(guest_->node("file"), node);
}

TEST_F(ReaderEscape, TheGrantIsTheFolderNotItsPath) {
  write_text(grant_ / "file", "granted");
  boot(Mode::rw);
  std::filesystem::rename(grant_, directory_->path() / "moved");
  std::filesystem::create_directory(grant_);
  write_text(grant_ / "file", "impostor");
  EXPECT_EQ(guest_->read(guest_->handle(guest_->node("file"), O_RDONLY), 0, 64).payload, "granted");
}

TEST_F(ReaderEscape, FoldersThatMoveStayReachable) {
  std::filesystem::create_directories(grant_ / "a" / "b" / "c");
  write_text(grant_ / "a" / "b" / "c" / "file", "x");
  boot(Mode::rw);
  auto folder = guest_->node("a/b/c");
  std::filesystem::rename(grant_ / "a" / "b", grant_ / "moved");
  EXPECT_EQ(guest_->lookup(folder, "file").error, 0);
  std::filesystem::rename(grant_ / "moved", outside() / "moved");
  // Carried out of the grant: the descriptor still leads there, Landlock does not let it be read.
  auto file = guest_->lookup(folder, "file");
  if (file.error == 0) {
    EXPECT_NE(guest_->open(file.as<fuse_entry_out>().nodeid, O_RDONLY).error, 0);
  }
  EXPECT_NE(guest_->create(folder, "new", O_WRONLY | O_CREAT).error, 0);
  EXPECT_FALSE(std::filesystem::exists(outside() / "moved" / "c" / "new"));
}

TEST_F(ReaderEscape, MountPointsAreNotCrossed) {
  std::filesystem::create_directory(grant_ / "mounted");
  if (geteuid() != 0 || mount("tmpfs", (grant_ / "mounted").c_str(), "tmpfs", 0, nullptr) != 0)
    GTEST_SKIP() << "mounting needs root";
  write_text(grant_ / "mounted" / "secret", "secret");
  boot(Mode::rw);
  EXPECT_EQ(guest_->lookup(FUSE_ROOT_ID, "mounted").error, EACCES);
  auto names = guest_->list(FUSE_ROOT_ID, FUSE_READDIRPLUS);
  ASSERT_TRUE(names.count("mounted"));
  EXPECT_EQ(names["mounted"], 0u) << "seen, without attributes";
  // Mounted over a folder the guest knows already.
  std::filesystem::create_directory(grant_ / "later");
  auto later = guest_->node("later");
  ASSERT_NE(later, 0u);
  ASSERT_EQ(mount("tmpfs", (grant_ / "later").c_str(), "tmpfs", 0, nullptr), 0);
  write_text(grant_ / "later" / "secret", "secret");
  EXPECT_NE(guest_->lookup(later, "secret").as<fuse_entry_out>().nodeid, 1u);
  EXPECT_EQ(guest_->node("later/secret"), 0u);
  for (const char* name : {"mounted", "later"}) EXPECT_EQ(umount2((grant_ / name).c_str(), MNT_DETACH), 0);
}

// 200 folders deep, and a file at the bottom: found again by its names after every descriptor was given up.
TEST_F(ReaderEscape, DeepPathsAreWalked) {
  UniqueFd at(open(grant_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::string path;
  for (int i = 0; i < 200; ++i) {
    auto name = "level-" + std::to_string(i) + std::string(40, 'x');
    ASSERT_EQ(mkdirat(at.get(), name.c_str(), 0755), 0);
    at.reset(openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    path += name + "/";
  }
  UniqueFd file(openat(at.get(), "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(write(file.get(), "deep", 4), 4);
  boot(Mode::ro);
  auto node = guest_->node(path + "file");
  ASSERT_NE(node, 0u);
  EXPECT_EQ(guest_->read(guest_->handle(node, O_RDONLY), 0, 16).payload, "deep");
}

}  // namespace
}  // namespace anchorhold::mounts
