// A disk that is full, beneath the granted folder or beneath the ledger: the client is told, and everything
// that was there before is still there or kept.
#include <cerrno>
#include <chrono>
#include <sys/mount.h>
#include <thread>

#include "keeper_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

class FullDisk : public KeeperTest {
 protected:
  void TearDown() override {
    KeeperTest::TearDown();
    for (const auto& folder : mounted_) umount2(folder.c_str(), MNT_DETACH);
  }
  // A small file system of its own in the place of the folder; false where this process may not mount.
  bool make_small(const fs::path& folder, const char* options) {
    if (mount("none", folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) return false;
    mounted_.push_back(folder);
    return true;
  }
  static void fill(const fs::path& folder) {
    UniqueFd fd(open((folder / "filling").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    std::string block(4096, 'x');
    while (write(fd.get(), block.data(), block.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
  }

 private:
  std::vector<fs::path> mounted_;
};

TEST_F(FullDisk, BeneathTheFolder) {
  if (!make_small(grant_, "size=256k")) GTEST_SKIP() << "no right to mount here: a full disk is not tested";
  write_text(grant_ / "old", "precious");
  start(Mode::rw);
  auto file = create("", "new");
  ASSERT_EQ(file.error, 0);
  fill(grant_);
  EXPECT_EQ(::write(file.descriptor.get(), "x", 1), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(allocate(file.descriptor.get(), 0, 0, 1 << 20).error, ENOSPC);
  // What needs no room there still works, and what was there is kept: the ledger has a disk of its own.
  auto opened = open_write("old", open_flag::truncate);
  EXPECT_EQ(opened.error, 0);
  EXPECT_TRUE(is_kept("precious"));
  EXPECT_EQ(unlink("", "new").error, 0);
  EXPECT_GT(numbers().requests, 0u);
}

TEST_F(FullDisk, WithoutAnotherInode) {
  if (!make_small(grant_, "size=1m,nr_inodes=4")) GTEST_SKIP() << "no right to mount here: it is not tested";
  write_text(grant_ / "old", "precious");
  start(Mode::rw);
  int error = 0;
  for (int i = 0; i < 10 && error == 0; ++i) error = create("", "n" + std::to_string(i)).error;
  EXPECT_EQ(error, ENOSPC);
  EXPECT_EQ(mkdir("", "folder").error, ENOSPC);
  EXPECT_EQ(unlink("", "n0").error, 0);
  // The thread that answered for n0 may hold its descriptor for a moment longer.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while ((error = create("", "again").error) == ENOSPC && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(error, 0);
  EXPECT_EQ(read_text(grant_ / "old"), "precious");
}

TEST_F(FullDisk, BeneathTheLedger) {
  if (!make_small(ledger_, "size=4m")) GTEST_SKIP() << "no right to mount here: a full ledger is not tested";
  write_text(grant_ / "large", std::string(8 << 20, 'p'));
  write_text(grant_ / "small", "precious");
  for (Mode mode : {Mode::rw, Mode::rw_no_delete}) {
    start(mode);
    EXPECT_EQ(open_write("large").error, ENOSPC) << to_string(mode);
    EXPECT_EQ(expect_report(ReportKind::refused).error, ENOSPC);
    EXPECT_EQ(truncate(at("large").get(), 0).error, ENOSPC);
    create_with("", "new", "x");
    EXPECT_EQ(rename("", "new", "", "large").error, ENOSPC);
    EXPECT_EQ(unlink("", "new").error, 0);
    EXPECT_EQ(unlink("", "large").error, mode == Mode::rw ? ENOSPC : EACCES);
    EXPECT_EQ(fs::file_size(grant_ / "large"), 8u << 20);
    // Half of a copy is none.
    for (const auto& [text, name] : kept()) EXPECT_LT(text.size(), 1u << 20) << name;
  }
  // What still fits is kept.
  EXPECT_EQ(open_write("small", open_flag::truncate).error, 0);
  EXPECT_TRUE(is_kept("precious"));
}

TEST_F(FullDisk, BeneathTheLedgerToTheLastByte) {
  if (!make_small(ledger_, "size=4m")) GTEST_SKIP() << "no right to mount here: a full ledger is not tested";
  for (int i = 0; i < 40; ++i)
    write_text(grant_ / ("old" + std::to_string(i)), "precious " + std::to_string(i));
  start(Mode::rw);
  fill(ledger_);
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    std::string name = "old" + std::to_string(i), text = "precious " + std::to_string(i);
    if (open_write(name, open_flag::truncate).error != 0) {
      ++refused;
      EXPECT_EQ(read_text(grant_ / name), text);
    } else {
      EXPECT_TRUE(is_kept(text)) << name;
    }
  }
  EXPECT_GT(refused, 0);
  // With room again it goes on.
  fs::remove(ledger_ / "filling");
  EXPECT_EQ(open_write("old39", open_flag::truncate).error, 0);
  EXPECT_TRUE(is_kept("precious 39"));
}

}  // namespace
}  // namespace anchorhold::mounts::testing
