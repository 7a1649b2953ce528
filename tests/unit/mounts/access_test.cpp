// The host's file tools over a real keeper.
#include "mounts/access.h"

#include <thread>

#include "keeper_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

class Access : public KeeperTest {
 protected:
  void open_grant(Mode mode, std::optional<std::string> only_file = std::nullopt) {
    AccessibleGrant grant;
    grant.name = "work";
    grant.root = at();
    grant.mode = mode;
    grant.only_file = only_file;
    if (mode != Mode::ro) {
      std::vector<std::string> arguments;
      if (only_file) arguments = {"--only-file", *only_file};
      start(mode, arguments);
      grant.keeper = std::make_shared<KeeperClient>(std::move(keeper_->sockets[1]));
    }
    access_.add(std::move(grant));
  }
  ErrorCode error_of(const auto& result) {
    EXPECT_FALSE(result);
    return result ? ErrorCode::internal : result.error().code;
  }
  std::string read_all(const std::string& path) {
    auto text = access_.read(path, 0, 1 << 20);
    EXPECT_TRUE(text) << (text ? "" : text.error().message);
    return text ? *text : "";
  }

  FileAccess access_;
};

TEST_F(Access, ReadsWithinBounds) {
  write_text(grant_ / "file", "0123456789");
  open_grant(Mode::ro);
  EXPECT_EQ(*access_.read("/mnt/work/file", 0, 100), "0123456789");
  EXPECT_EQ(*access_.read("/mnt/work/file", 4, 3), "456");
  EXPECT_EQ(*access_.read("/mnt/work/file", 100, 3), "");
  EXPECT_EQ(*access_.read("/mnt/work/./x/../file", 0, 1), "0");
  auto info = access_.stat("/mnt/work/file");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->size, 10u);
  EXPECT_EQ(info->kind, FileKind::file);
}

TEST_F(Access, OnlyGrantedFoldersExist) {
  open_grant(Mode::ro);
  for (auto path : {"/etc/passwd", "work/file", "/mnt/other/file", "/mnt/work/../../etc/passwd", "/",
                    "/mnt/work/../other", ""})
    EXPECT_EQ(error_of(access_.read(path, 0, 1)), ErrorCode::invalid_argument) << path;
  EXPECT_EQ(error_of(access_.read("/mnt/work/missing", 0, 1)), ErrorCode::not_found);
  EXPECT_EQ(error_of(access_.read(std::string("/mnt/work/a\0b", 13), 0, 1)), ErrorCode::invalid_argument);
}

TEST_F(Access, NothingIsReachedThroughASymlinkThatLeadsOut) {
  write_text(outside_ / "secret", "secret");
  fs::create_symlink(outside_ / "secret", grant_ / "absolute");
  fs::create_symlink("../outside/secret", grant_ / "relative");
  fs::create_directory_symlink("../outside", grant_ / "folder");
  fs::create_symlink("/proc/self/root/etc/passwd", grant_ / "magic");
  open_grant(Mode::rw);
  for (auto path : {"absolute", "relative", "folder/secret", "magic"}) {
    EXPECT_EQ(error_of(access_.read(std::string("/mnt/work/") + path, 0, 9)), ErrorCode::permission_denied)
        << path;
    EXPECT_FALSE(access_.write(std::string("/mnt/work/") + path, "changed")) << path;
  }
  EXPECT_FALSE(access_.list("/mnt/work/folder", 10));
  EXPECT_FALSE(access_.write("/mnt/work/folder/new", "x"));
  EXPECT_EQ(read_text(outside_ / "secret"), "secret");
  EXPECT_EQ(std::distance(fs::directory_iterator(outside_), {}), 1);
}

TEST_F(Access, SymlinksInsideAreFollowed) {
  ASSERT_TRUE(fs::create_directory(grant_ / "real"));
  write_text(grant_ / "real/file", "text");
  fs::create_directory_symlink("real", grant_ / "link");
  fs::create_symlink("real/file", grant_ / "to-file");
  fs::create_symlink("nowhere", grant_ / "dangling");
  open_grant(Mode::rw);
  EXPECT_EQ(read_all("/mnt/work/link/file"), "text");
  ASSERT_TRUE(access_.write("/mnt/work/to-file", "new"));
  EXPECT_TRUE(fs::is_symlink(grant_ / "to-file"));
  EXPECT_EQ(read_text(grant_ / "real/file"), "new");
  ASSERT_TRUE(access_.write("/mnt/work/link/other", "2"));
  EXPECT_EQ(read_text(grant_ / "real/other"), "2");
  EXPECT_EQ(error_of(access_.write("/mnt/work/dangling", "x")), ErrorCode::invalid_argument);
  EXPECT_FALSE(fs::exists(grant_ / "nowhere"));
}

TEST_F(Access, HiddenNamesDoNotExist) {
  write_text(grant_ / ".env", "TOKEN=1");
  ASSERT_TRUE(fs::create_directory(grant_ / ".ssh"));
  write_text(grant_ / ".ssh/config", "x");
  fs::create_symlink(".env", grant_ / "harmless");
  fs::create_directory_symlink(".ssh", grant_ / "folder");
  write_text(grant_ / "seen", "");
  open_grant(Mode::rw);
  for (auto path : {".env", ".ENV", ".ssh/config", "harmless", "folder/config"}) {
    auto full = std::string("/mnt/work/") + path;
    EXPECT_EQ(error_of(access_.read(full, 0, 9)), ErrorCode::not_found) << path;
    EXPECT_EQ(error_of(access_.stat(full)), ErrorCode::not_found) << path;
    EXPECT_FALSE(access_.write(full, "x")) << path;
  }
  EXPECT_FALSE(access_.write("/mnt/work/.env.local", "x"));
  EXPECT_EQ(read_text(grant_ / ".env"), "TOKEN=1");
  auto listing = access_.list("/mnt/work", 100);
  ASSERT_TRUE(listing);
  std::vector<std::string> names;
  for (const auto& entry : listing->entries) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"folder", "harmless", "seen"}));
}

TEST_F(Access, WritesWholeFilesAndMakesParents) {
  open_grant(Mode::rw);
  ASSERT_TRUE(access_.write("/mnt/work/a/b/c.txt", "hello"));
  EXPECT_EQ(read_text(grant_ / "a/b/c.txt"), "hello");
  ASSERT_EQ(::chmod((grant_ / "a/b/c.txt").c_str(), 0750), 0);
  ASSERT_TRUE(access_.write("/mnt/work/a/b/c.txt", ""));
  EXPECT_EQ(fs::file_size(grant_ / "a/b/c.txt"), 0u);
  EXPECT_EQ(fs::status(grant_ / "a/b/c.txt").permissions(), static_cast<fs::perms>(0750));
  EXPECT_EQ(std::distance(fs::directory_iterator(grant_ / "a/b"), {}), 1);
  EXPECT_EQ(error_of(access_.write("/mnt/work/a", "x")), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of(access_.write("/mnt/work", "x")), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of(access_.write("/mnt/work/a/b/c.txt/d", "x")), ErrorCode::invalid_argument);
}

TEST_F(Access, AReaderSeesOldOrNew) {
  const std::string one(200'000, '1'), two(300'000, '2');
  write_text(grant_ / "file", one);
  open_grant(Mode::rw);
  std::jthread writer([&](std::stop_token stop) {
    for (int i = 0; i < 50 && !stop.stop_requested(); ++i)
      EXPECT_TRUE(access_.write("/mnt/work/file", i % 2 ? one : two));
  });
  for (int i = 0; i < 50; ++i) {
    auto text = read_text(grant_ / "file");
    ASSERT_TRUE(text == one || text == two) << text.size();
  }
}

TEST_F(Access, ReplacingKeepsWhatWasThere) {
  write_text(grant_ / "old", "before");
  open_grant(Mode::rw_no_delete);
  ASSERT_TRUE(access_.write("/mnt/work/old", "after"));
  EXPECT_EQ(read_text(grant_ / "old"), "after");
  EXPECT_TRUE(is_kept("before"));
}

TEST_F(Access, ReadOnlyIsReadOnly) {
  write_text(grant_ / "file", "x");
  open_grant(Mode::ro);
  EXPECT_EQ(error_of(access_.write("/mnt/work/file", "y")), ErrorCode::permission_denied);
  EXPECT_EQ(error_of(access_.write("/mnt/work/new", "y")), ErrorCode::permission_denied);
  EXPECT_EQ(read_text(grant_ / "file"), "x");
}

TEST_F(Access, OnlyRegularFilesAreRead) {
  ASSERT_EQ(mkfifo((grant_ / "fifo").c_str(), 0600), 0);
  ASSERT_TRUE(fs::create_directory(grant_ / "folder"));
  open_grant(Mode::rw);
  EXPECT_EQ(error_of(access_.read("/mnt/work/fifo", 0, 1)), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of(access_.read("/mnt/work/folder", 0, 1)), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of(access_.write("/mnt/work/fifo", "x")), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of(access_.list("/mnt/work/fifo", 1)), ErrorCode::invalid_argument);
  EXPECT_EQ(access_.stat("/mnt/work/fifo")->kind, FileKind::other);
}

TEST_F(Access, ListsSortedAndBounded) {
  for (int i = 0; i < 100; ++i) write_text(grant_ / ("f" + std::to_string(100 + i)), "");
  open_grant(Mode::ro);
  auto listing = access_.list("/mnt/work", 10);
  ASSERT_TRUE(listing);
  EXPECT_TRUE(listing->truncated);
  ASSERT_EQ(listing->entries.size(), 10u);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(listing->entries[static_cast<std::size_t>(i)].name, "f" + std::to_string(100 + i));
  listing = access_.list("/mnt/work", 100);
  ASSERT_TRUE(listing);
  EXPECT_FALSE(listing->truncated);
  EXPECT_EQ(listing->entries.size(), 100u);
  auto grants = access_.list("/mnt", 10);
  ASSERT_TRUE(grants);
  ASSERT_EQ(grants->entries.size(), 1u);
  EXPECT_EQ(grants->entries[0].name, "work");
}

TEST_F(Access, ASingleFileIsWrittenInPlaceAndAlone) {
  write_text(grant_ / "data.csv", "old");
  write_text(grant_ / "sibling", "theirs");
  open_grant(Mode::rw, "data.csv");
  EXPECT_EQ(read_all("/mnt/work/data.csv"), "old");
  EXPECT_EQ(error_of(access_.read("/mnt/work/sibling", 0, 1)), ErrorCode::not_found);
  EXPECT_EQ(access_.list("/mnt/work", 10)->entries.size(), 1u);
  ASSERT_TRUE(access_.write("/mnt/work/data.csv", "new"));
  EXPECT_EQ(read_text(grant_ / "data.csv"), "new");
  EXPECT_TRUE(is_kept("old"));
  EXPECT_FALSE(access_.write("/mnt/work/sibling", "x"));
  EXPECT_FALSE(access_.write("/mnt/work/new", "x"));
  EXPECT_EQ(read_text(grant_ / "sibling"), "theirs");
}

TEST_F(Access, AGoneKeeperIsSaid) {
  open_grant(Mode::rw);
  keeper_->child->kill(SIGKILL);
  ASSERT_TRUE(keeper_->child->wait(patience));
  EXPECT_EQ(error_of(access_.write("/mnt/work/x", "y")), ErrorCode::unavailable);
}

}  // namespace
}  // namespace anchorhold::mounts::testing
