// Where the file system has clones, what is kept and what is put back is one: the bytes are on the disk once,
// and each side may be changed without the other.
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include "database/database.h"
#include "ledger.h"
#include "undo_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

// Whether every byte of the file is on the disk for another file as well.
bool is_shared(const fs::path& path) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  constexpr unsigned most = 64;
  std::vector<char> bytes(sizeof(fiemap) + most * sizeof(fiemap_extent));
  auto* map = reinterpret_cast<fiemap*>(bytes.data());
  map->fm_length = FIEMAP_MAX_OFFSET;
  map->fm_flags = FIEMAP_FLAG_SYNC;
  map->fm_extent_count = most;
  if (ioctl(file.get(), FS_IOC_FIEMAP, map) != 0) {
    ADD_FAILURE() << path << ": " << std::strerror(errno);
    return false;
  }
  bool all = map->fm_mapped_extents > 0;
  for (unsigned i = 0; i < map->fm_mapped_extents; ++i)
    all = all && (map->fm_extents[i].fe_flags & FIEMAP_EXTENT_SHARED);
  return all;
}

struct Where {
  const char* file_system;
  Mode mode;
};

// The grant and its ledger on a file system of their own, in a file.
class Reflink : public UndoTest, public ::testing::WithParamInterface<Where> {
 protected:
  void SetUp() override {
    UndoTest::SetUp();
    auto made = TemporaryDirectory::create("anchorhold-reflink-test");
    ASSERT_TRUE(made);
    disk_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    SpawnSpec spec;
    spec.argv = {"/bin/sh",
                 "-ec",
                 "PATH=$PATH:/usr/sbin:/sbin; truncate -s 512M \"$1\"; mkfs.\"$2\" -q \"$1\" >/dev/null; "
                 "mount -o loop \"$1\" \"$3\"",
                 "sh",
                 (disk_->path() / "disk").string(),
                 GetParam().file_system,
                 directory_->path().string()};
    spec.descriptors = {{2, 2}};
    auto child = Child::spawn(spec);
    ASSERT_TRUE(child) << child.error().message;
    mounted_ = child->wait().ok();
    if (!mounted_)
      GTEST_SKIP() << GetParam().file_system
                   << " cannot be made and mounted here (as root, with its programs and a loop device): what "
                      "is kept as a clone is not tested on it";
    for (const auto& folder : {grant_, outside_}) fs::create_directory(folder);
    use_session_folder();
  }
  void TearDown() override {
    UndoTest::TearDown();
    if (!mounted_) return;
    EXPECT_EQ(umount2(directory_->path().c_str(), MNT_DETACH), 0) << std::strerror(errno);
  }
  // The only content that the ledger holds.
  HowKept how_kept() {
    auto journal = database::Database::open(ledger_ / "journal.db", database::Database::Mode::read_only);
    auto how = journal ? journal->query_integer("SELECT kept FROM object WHERE kept_name IS NOT NULL")
                       : Result<std::optional<std::int64_t>>(fail(journal.error()));
    EXPECT_TRUE(how && *how) << "nothing is kept";
    return how && *how ? static_cast<HowKept>(**how) : HowKept::not_kept;
  }

 private:
  std::unique_ptr<TemporaryDirectory> disk_;
  bool mounted_ = false;
};

TEST_P(Reflink, IsHowAnOldFileIsKeptAndComesBack) {
  const std::string old(3 << 20, 'o');
  write_text(grant_ / "old", old);
  age(grant_ / "old");
  age(grant_);
  auto before = snapshot_of(grant_);
  begin(GetParam().mode);
  auto opened = open_write("old");
  ASSERT_EQ(opened.error, 0);
  const auto all_kept = kept();
  const auto found = all_kept.find(old);
  ASSERT_NE(found, all_kept.end());
  const auto kept_file = ledger_ / "kept" / found->second;
  EXPECT_TRUE(is_shared(kept_file));
  // Changed in the middle, cut and grown: what was kept stays.
  for (off_t at : {0, 1 << 20, (3 << 20) - 1, 4 << 20})
    ASSERT_EQ(pwrite(opened.descriptor.get(), "session", 7, at), 7);
  EXPECT_EQ(read_text(kept_file), old);
  ASSERT_EQ(truncate(opened.descriptor.get(), 100).error, 0);
  EXPECT_EQ(read_text(kept_file), old);
  opened.descriptor.reset();
  end_keeper();
  // A copy shares extents there, too, but is not of one moment.
  EXPECT_EQ(how_kept(), HowKept::cloned);
  auto after = snapshot_of(grant_);
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  EXPECT_TRUE(is_shared(grant_ / "old")) << "it is put back as a clone, too";
  expect_all_done(undo({.redo = true}));
  EXPECT_EQ(difference(after, snapshot_of(grant_)), "");
  expect_all_done(undo());
  // What is done to the file later does not reach what is kept of it.
  host_writes("old", "by the host");
  expect_all_done(undo({.force = true}));
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

TEST_P(Reflink, AnySessionIsUndoneAndRedone) {
  for (std::uint64_t round = 0; round < 5 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("ANCHORHOLD_TEST_SEED={} round {}", seed(), round));
    auto before = begin_any_session(3000 + round, GetParam().mode);
    act_and_end();
    auto after = snapshot_of(grant_);
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "") << "after the undo";
    if (HasFailure() || after == before) continue;
    expect_all_done(undo({.redo = true}));
    EXPECT_EQ(difference(after, snapshot_of(grant_)), "") << "after the redo";
  }
}

INSTANTIATE_TEST_SUITE_P(FileSystems, Reflink,
                         ::testing::Values(Where{"btrfs", Mode::rw}, Where{"btrfs", Mode::rw_no_delete},
                                           Where{"xfs", Mode::rw}, Where{"xfs", Mode::rw_no_delete}),
                         [](const auto& each) {
                           return fmt::format("{}_{}", each.param.file_system,
                                              each.param.mode == Mode::rw ? "rw" : "rw_no_delete");
                         });

}  // namespace
}  // namespace anchorhold::mounts::testing
