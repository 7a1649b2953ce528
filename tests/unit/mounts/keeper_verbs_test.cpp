// Each verb where it is allowed, in both modes that have a keeper.
#include <sys/xattr.h>

#include "keeper_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

class KeeperVerbs : public KeeperTest, public ::testing::WithParamInterface<Mode> {
 protected:
  struct stat info(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(lstat((grant_ / path).c_str(), &info), 0) << path;
    return info;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, KeeperVerbs, ::testing::Values(Mode::rw, Mode::rw_no_delete),
                         [](const auto& mode) { return mode.param == Mode::rw ? "rw" : "rw_no_delete"; });

TEST_P(KeeperVerbs, CreateHandsOutAWritableDescriptorWithTheModeAskedFor) {
  start(GetParam());
  auto made = create("", "report.txt", open_flag::exclusive | open_flag::read_too, 0640);
  ASSERT_EQ(made.error, 0);
  ASSERT_TRUE(write_all(made.descriptor.get(), std::as_bytes(std::span("hello", 5))));
  EXPECT_EQ(read_text(grant_ / "report.txt"), "hello");
  EXPECT_EQ(info("report.txt").st_mode, S_IFREG | 0640u);
  struct stat handed_out;
  ASSERT_EQ(fstat(made.descriptor.get(), &handed_out), 0);
  EXPECT_EQ(handed_out.st_ino, info("report.txt").st_ino);
}

TEST_P(KeeperVerbs, CreateStripsSetuidAndSetgid) {
  start(GetParam());
  ASSERT_EQ(create("", "tool", open_flag::exclusive, 06755).error, 0);
  EXPECT_EQ(info("tool").st_mode, S_IFREG | 0755u);
  ASSERT_EQ(mkdir("", "folder", 06755).error, 0);
  EXPECT_EQ(info("folder").st_mode, S_IFDIR | 0755u);
}

TEST_P(KeeperVerbs, CreateOfAnExistingNameOpensItUnlessExclusive) {
  write_text(grant_ / "old.txt", "old");
  start(GetParam());
  EXPECT_EQ(create("", "old.txt").error, EEXIST);
  auto opened = create("", "old.txt", open_flag::append);
  ASSERT_EQ(opened.error, 0);
  ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("+new", 4))));
  EXPECT_EQ(read_text(grant_ / "old.txt"), "old+new");
  EXPECT_TRUE(is_kept("old"));
}

TEST_P(KeeperVerbs, CreateNeverFollowsASymlink) {
  write_text(outside_ / "target", "untouched");
  std::filesystem::create_symlink(outside_ / "target", grant_ / "link");
  std::filesystem::create_symlink(outside_ / "missing", grant_ / "dangling");
  start(GetParam());
  EXPECT_EQ(create("", "link", open_flag::truncate).error, ELOOP);
  EXPECT_EQ(create("", "dangling", 0).error, ELOOP);
  EXPECT_EQ(read_text(outside_ / "target"), "untouched");
  EXPECT_FALSE(std::filesystem::exists(outside_ / "missing"));
}

TEST_P(KeeperVerbs, FoldersSymlinksAndLinksAreMade) {
  start(GetParam());
  ASSERT_EQ(mkdir("", "a", 0750).error, 0);
  create_with("a", "one", "1");
  ASSERT_EQ(symlink("a", "to-one", "one").error, 0);
  EXPECT_EQ(std::filesystem::read_symlink(grant_ / "a/to-one"), "one");
  ASSERT_EQ(link("a/one", "a", "two").error, 0);
  EXPECT_EQ(info("a/two").st_nlink, 2u);
  auto linked_symlink = link("a/to-one", "", "second-symlink");
  ASSERT_EQ(linked_symlink.error, 0);
  EXPECT_EQ(std::filesystem::read_symlink(grant_ / "second-symlink"), "one");
  EXPECT_EQ(link("a", "", "folder").error, EPERM);
}

TEST_P(KeeperVerbs, WhatTheSessionMadeIsItsOwn) {
  start(GetParam());
  ASSERT_EQ(mkdir("", "work").error, 0);
  create_with("work", "one", "1");
  create_with("work", "two", "2");
  ASSERT_EQ(symlink("work", "s", "one").error, 0);
  EXPECT_EQ(rename("work", "one", "", "moved").error, 0);
  EXPECT_EQ(rename("", "moved", "work", "two").error, 0);
  EXPECT_EQ(read_text(grant_ / "work/two"), "1");
  EXPECT_EQ(link("work/two", "work", "three").error, 0);
  create_with("", "x", "x");
  EXPECT_EQ(rename("", "x", "work", "three", rename_flag::exchange).error, 0);
  EXPECT_EQ(read_text(grant_ / "x"), "1");
  EXPECT_EQ(unlink("", "x").error, 0);
  EXPECT_EQ(rename("", "work", "", "renamed").error, 0);
  EXPECT_EQ(rmdir("", "renamed").error, ENOTEMPTY);
  for (auto name : {"two", "three", "s"}) EXPECT_EQ(unlink("renamed", name).error, 0) << name;
  EXPECT_EQ(rmdir("", "renamed").error, 0);
  EXPECT_TRUE(std::filesystem::is_empty(grant_));
  EXPECT_TRUE(kept().empty());
}

TEST_P(KeeperVerbs, RenameKeepsToItsFlags) {
  start(GetParam());
  create_with("", "a", "a");
  create_with("", "b", "b");
  EXPECT_EQ(rename("", "a", "", "b", rename_flag::no_replace).error, EEXIST);
  EXPECT_EQ(rename("", "a", "", "missing", rename_flag::exchange).error, ENOENT);
  EXPECT_EQ(rename("", "a", "", "b", rename_flag::all).error, EINVAL);
  EXPECT_EQ(rename("", "missing", "", "b").error, ENOENT);
  ASSERT_EQ(mkdir("", "folder").error, 0);
  EXPECT_EQ(rename("", "a", "", "folder").error, EISDIR);
  EXPECT_EQ(rename("", "folder", "", "a").error, ENOTDIR);
  ASSERT_EQ(mkdir("folder", "inner").error, 0);
  EXPECT_EQ(rename("", "folder", "folder/inner", "self").error, EINVAL);
  EXPECT_EQ(rename("", "a", "", "c", rename_flag::no_replace).error, 0);
  EXPECT_EQ(read_text(grant_ / "c"), "a");
}

TEST_P(KeeperVerbs, RemovingTheWrongKindIsRefused) {
  start(GetParam());
  create_with("", "file", "");
  ASSERT_EQ(mkdir("", "folder").error, 0);
  EXPECT_EQ(unlink("", "folder").error, EISDIR);
  EXPECT_EQ(rmdir("", "file").error, ENOTDIR);
  EXPECT_EQ(unlink("", "missing").error, ENOENT);
}

TEST_P(KeeperVerbs, AttributesOfAnythingMayChangeButOwnersAndSpecialBits) {
  write_text(grant_ / "old.sh", "echo");
  std::filesystem::create_symlink("old.sh", grant_ / "link");
  start(GetParam());
  ASSERT_EQ(chmod("old.sh", 0755).error, 0);
  EXPECT_EQ(info("old.sh").st_mode, S_IFREG | 0755u);
  EXPECT_EQ(chmod("old.sh", 04755).error, EPERM);
  EXPECT_EQ(chmod("old.sh", 02755).error, EPERM);
  EXPECT_EQ(chmod("link", 0600).error, EOPNOTSUPP);

  auto request = make_request(Verb::set_attributes);
  request.valid = valid_flag::modify_time | valid_flag::access_time_now;
  request.modify_time = {1'000'000'000, 123'456'789, 0};
  ASSERT_EQ(ask(request, {at("old.sh").get()}).error, 0);
  EXPECT_EQ(info("old.sh").st_mtim.tv_sec, 1'000'000'000);
  EXPECT_EQ(info("old.sh").st_mtim.tv_nsec, 123'456'789);
  EXPECT_GT(info("old.sh").st_atim.tv_sec, 1'000'000'000);
  request.valid = valid_flag::modify_time;
  ASSERT_EQ(ask(request, {at("link").get()}).error, 0);
  EXPECT_EQ(info("link").st_mtim.tv_sec, 1'000'000'000);
}

TEST_P(KeeperVerbs, ASetgidBitThatIsThereMayStay) {
  ASSERT_TRUE(std::filesystem::create_directory(grant_ / "shared"));
  ASSERT_EQ(::chmod((grant_ / "shared").c_str(), 02775), 0);
  ASSERT_TRUE(info("shared").st_mode & S_ISGID);
  start(GetParam());
  ASSERT_EQ(chmod("shared", 02755).error, 0);
  EXPECT_EQ(info("shared").st_mode, S_IFDIR | 02755u);
}

TEST_P(KeeperVerbs, UserXattrsOnly) {
  write_text(grant_ / "file", "");
  if (setxattr((grant_ / "file").c_str(), "user.probe", "", 0, 0) != 0)
    GTEST_SKIP() << "no user xattrs on this file system";
  start(GetParam());
  ASSERT_EQ(set_xattr("file", "user.origin", "somewhere").error, 0);
  char value[32];
  ASSERT_EQ(getxattr((grant_ / "file").c_str(), "user.origin", value, sizeof value), 9);
  EXPECT_EQ(std::string_view(value, 9), "somewhere");
  for (auto name : {"security.capability", "trusted.x", "system.posix_acl_access", "user", "user."})
    EXPECT_EQ(set_xattr("file", name, "x").error, EOPNOTSUPP) << name;
  auto request = make_request(Verb::set_xattr, "user.origin");
  request.flags = xattr_flag::create;
  EXPECT_EQ(ask(request, {at("file").get()}, "again").error, EEXIST);
  EXPECT_EQ(ask(make_request(Verb::remove_xattr, "user.origin"), {at("file").get()}).error, 0);
  EXPECT_EQ(ask(make_request(Verb::remove_xattr, "user.origin"), {at("file").get()}).error, ENODATA);
}

TEST_P(KeeperVerbs, TruncateByNameAndByHandedOutDescriptor) {
  start(GetParam());
  auto made = create("", "file");
  ASSERT_EQ(made.error, 0);
  ASSERT_TRUE(write_all(made.descriptor.get(), std::as_bytes(std::span("0123456789", 10))));
  ASSERT_EQ(truncate(at("file").get(), 4).error, 0);
  EXPECT_EQ(info("file").st_size, 4);
  ASSERT_EQ(truncate(made.descriptor.get(), 6).error, 0);
  EXPECT_EQ(info("file").st_size, 6);
  EXPECT_EQ(truncate(at("file").get(), ~0ull).error, EFBIG);
  ASSERT_EQ(mkdir("", "folder").error, 0);
  EXPECT_EQ(truncate(at("folder").get(), 0).error, EISDIR);
}

TEST_P(KeeperVerbs, AFileWithoutANameIsStillTheSessions) {
  start(GetParam());
  auto made = create("", "temporary", open_flag::exclusive | open_flag::read_too);
  ASSERT_EQ(unlink("", "temporary").error, 0);
  ASSERT_EQ(truncate(made.descriptor.get(), 100).error, 0);
  struct stat truncated;
  ASSERT_EQ(fstat(made.descriptor.get(), &truncated), 0);
  EXPECT_EQ(truncated.st_size, 100);
  auto request = make_request(Verb::set_attributes);
  request.valid = valid_flag::mode;
  request.mode = 0600;
  EXPECT_EQ(ask(request, {made.descriptor.get()}).error, 0);
  EXPECT_EQ(link("", "", "x").error, EPERM);
  EXPECT_EQ(ask(make_request(Verb::link, "back"), {made.descriptor.get(), at().get()}).error, ENOENT);
}

TEST_P(KeeperVerbs, AllocateNeedsTheWritableDescriptor) {
  start(GetParam());
  auto made = create("", "file");
  ASSERT_EQ(allocate(made.descriptor.get(), 0, 0, 8192).error, 0);
  EXPECT_EQ(std::filesystem::file_size(grant_ / "file"), 8192u);
  EXPECT_EQ(
      allocate(made.descriptor.get(), allocate_flag::punch_hole | allocate_flag::keep_size, 0, 4096).error,
      0);
  EXPECT_EQ(allocate(at("file").get(), 0, 0, 16).error, EBADF);
  EXPECT_EQ(allocate(made.descriptor.get(), 0, 1ull << 62, 1ull << 63).error, EFBIG);
}

TEST_P(KeeperVerbs, OnlyRegularFilesAreOpened) {
  ASSERT_EQ(mkfifo((grant_ / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("fifo", grant_ / "link");
  ASSERT_TRUE(std::filesystem::create_directory(grant_ / "folder"));
  start(GetParam());
  EXPECT_EQ(open_write("fifo").error, EACCES);
  EXPECT_EQ(open_write("link").error, ELOOP);
  EXPECT_EQ(open_write("folder").error, EISDIR);
  EXPECT_EQ(link("fifo", "", "second").error, EPERM);
  EXPECT_EQ(create("", "fifo", 0).error, EACCES);
}

TEST_P(KeeperVerbs, NamesOfEveryByteAndLength) {
  start(GetParam());
  for (int byte = 1; byte < 256; ++byte) {
    if (byte == '/') continue;
    std::string name = "n";
    name += static_cast<char>(byte);
    ASSERT_EQ(create("", name).error, 0) << byte;
  }
  std::string longest(255, 'x');
  EXPECT_EQ(create("", longest).error, 0);
  EXPECT_EQ(unlink("", longest).error, 0);
  for (std::string_view bad : {std::string_view(""), std::string_view("."), std::string_view(".."),
                               std::string_view("a/b"), std::string_view("/"), std::string_view("../x")}) {
    EXPECT_EQ(create("", bad).error, EINVAL) << bad;
    EXPECT_EQ(mkdir("", bad).error, EINVAL) << bad;
    EXPECT_EQ(symlink("", bad, "t").error, EINVAL) << bad;
    EXPECT_EQ(unlink("", bad).error, EINVAL) << bad;
    EXPECT_EQ(rmdir("", bad).error, EINVAL) << bad;
    EXPECT_EQ(rename("", bad, "", "x").error, EINVAL) << bad;
  }
  EXPECT_EQ(create("", std::string(256, 'x')).error, EINVAL);
}

TEST_P(KeeperVerbs, DeepFolders) {
  start(GetParam());
  std::string path;
  for (int depth = 0; depth < 200; ++depth) {
    ASSERT_EQ(mkdir(path, "d").error, 0) << depth;
    path += path.empty() ? "d" : "/d";
  }
  create_with(path, "leaf", "deep");
  EXPECT_EQ(read_text(grant_ / path / "leaf"), "deep");
}

TEST_P(KeeperVerbs, TemporaryFilesAreCleanlyUnsupported) {
  start(GetParam());
  EXPECT_EQ(ask(make_request(Verb::temporary_file), {at().get()}).error, ENOTSUP);
}

TEST_P(KeeperVerbs, NumbersAreCounted) {
  write_text(grant_ / "old", "12345");
  start(GetParam());
  create_with("", "new", "x");
  ASSERT_EQ(unlink("", "new").error, 0);
  ASSERT_EQ(open_write("old").error, 0);
  auto counted = numbers();
  EXPECT_EQ(counted.created, 1u);
  EXPECT_EQ(counted.removed, 1u);
  EXPECT_EQ(counted.objects_kept, 1u);
  EXPECT_EQ(counted.bytes_kept, 5u);
  EXPECT_GT(counted.quota_bytes, 0u);
}

}  // namespace
}  // namespace anchorhold::mounts::testing
