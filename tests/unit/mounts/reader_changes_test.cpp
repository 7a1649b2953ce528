// What the guest can change: each operation through the reader and a real keeper, and none of them under ro.
#include <sys/stat.h>
#include <sys/xattr.h>

#include "reader_fixture.h"

namespace anchorhold::mounts {
namespace {

using testing::bytes_of;
using testing::FuseGuest;
using testing::read_text;
using testing::ReaderTest;
using testing::write_text;

class ReaderChanges : public ReaderTest {
 protected:
  std::uint64_t created(std::string_view name, std::string_view text, std::uint64_t parent = FUSE_ROOT_ID) {
    auto reply = guest_->create(parent, name, O_RDWR | O_CREAT | O_EXCL);
    EXPECT_EQ(reply.error, 0) << name;
    if (reply.error != 0) return 0;
    fuse_open_out opened;
    std::memcpy(&opened, reply.payload.data() + sizeof(fuse_entry_out), sizeof opened);
    handle_ = opened.fh;
    EXPECT_EQ(guest_->write(handle_, 0, text).as<fuse_write_out>().size, text.size());
    return reply.as<fuse_entry_out>().nodeid;
  }
  fuse_attr attributes(std::uint64_t node) { return guest_->attributes(node).as<fuse_attr_out>().attr; }
  std::uint64_t handle_ = 0;  // of the last created()
};

// The one that waits may be the only one that is under way when it comes.
TEST_F(ReaderChanges, WhileAPersonIsAskedOthersGoOn) {
  for (const char* name : {"old0", "old1", "old2"}) write_text(grant_ / name, "old");
  keeper_arguments_ = {"--bulk-changes", "1", "--answer-seconds", "600"};
  boot(Mode::rw);
  auto unlink = [](std::string_view name) {
    return FuseGuest::request(FUSE_UNLINK, FUSE_ROOT_ID, FuseGuest::name(name));
  };
  EXPECT_EQ(guest_->send(unlink("old0")).error, 0);
  auto waiting = guest_->submit(unlink("old1"), 4096);
  auto question = keeper_->next_report();
  while (question && question->kind != ReportKind::question) question = keeper_->next_report();
  ASSERT_TRUE(question);
  auto node = guest_->node("old2");
  ASSERT_NE(node, 0u);
  EXPECT_EQ(attributes(node).size, 3u);
  created("new", "made meanwhile");
  EXPECT_EQ(guest_->send(unlink("new")).error, 0);
  EXPECT_EQ(read_text(grant_ / "old1"), "old");
  auto answer = encode_answer({question->question, Verdict::allow_once});
  ASSERT_GT(::send(keeper_->reports.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 0);
  auto reply = guest_->wait(waiting);
  EXPECT_TRUE(reply.answered);
  EXPECT_EQ(reply.error, 0);
  EXPECT_FALSE(std::filesystem::exists(grant_ / "old1"));
}

TEST_F(ReaderChanges, ALargeOldFileIsKeptBeforeItIsWrittenTo) {
  const std::string old(3u << 20, 'o');
  write_text(grant_ / "large", old);
  boot(Mode::rw);
  auto handle = guest_->handle(guest_->node("large"), O_WRONLY);
  EXPECT_EQ(guest_->write(handle, 0, "new").as<fuse_write_out>().size, 3u);
  std::size_t kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_->path() / "ledger/kept"))
    kept += read_text(entry.path()) == old;
  EXPECT_EQ(kept, 1u);
}

TEST_F(ReaderChanges, CreatesWritesAndReads) {
  boot(Mode::rw);
  auto node = created("new", "hello");
  EXPECT_EQ(read_text(grant_ / "new"), "hello");
  EXPECT_EQ(guest_->read(handle_, 1, 100).payload, "ello");
  EXPECT_EQ(guest_->write(handle_, 5, std::string(100000, 'x')).as<fuse_write_out>().size, 100000u);
  EXPECT_EQ(attributes(node).size, 100005u);
  EXPECT_EQ(guest_->create(FUSE_ROOT_ID, "new", O_WRONLY | O_CREAT | O_EXCL).error, EEXIST);
  EXPECT_EQ(guest_->create(FUSE_ROOT_ID, "new", O_WRONLY | O_CREAT | O_TRUNC).error, 0);
  EXPECT_EQ(read_text(grant_ / "new"), "");
}

TEST_F(ReaderChanges, OpensForWritingAsAskedAndNoFurther) {
  write_text(grant_ / "file", "0123456789");
  boot(Mode::rw);
  auto node = guest_->node("file");
  auto only_write = guest_->handle(node, O_WRONLY);
  EXPECT_EQ(guest_->write(only_write, 2, "xy").error, 0);
  EXPECT_EQ(guest_->read(only_write, 0, 4).error, EBADF);
  auto only_read = guest_->handle(node, O_RDONLY);
  EXPECT_EQ(guest_->write(only_read, 0, "no").error, EBADF);
  EXPECT_EQ(guest_->read(only_read, 0, 64).payload, "01xy456789");
  EXPECT_EQ(guest_->open(node, O_RDWR | O_TRUNC).error, 0);
  EXPECT_EQ(guest_->read(only_read, 0, 64).payload, "");
}

TEST_F(ReaderChanges, AppendsWhereTheEndIsNow) {
  write_text(grant_ / "log", "one\n");
  boot(Mode::rw);
  auto handle = guest_->handle(guest_->node("log"), O_WRONLY | O_APPEND);
  { std::ofstream(grant_ / "log", std::ios::app) << "host\n"; }
  // The guest believes the file ends at 4.
  EXPECT_EQ(guest_->write(handle, 4, "two\n", O_WRONLY | O_APPEND).error, 0);
  EXPECT_EQ(read_text(grant_ / "log"), "one\nhost\ntwo\n");
  // A page of a mapping belongs where it was mapped from.
  EXPECT_EQ(guest_->write(handle, 0, "ONE\n", O_WRONLY | O_APPEND, FUSE_WRITE_CACHE).error, 0);
  EXPECT_EQ(read_text(grant_ / "log"), "ONE\nhost\ntwo\n");
}

TEST_F(ReaderChanges, FoldersLinksAndNames) {
  boot(Mode::rw);
  auto folder = guest_->make_folder(FUSE_ROOT_ID, "folder", 0750).as<fuse_entry_out>();
  EXPECT_EQ(folder.attr.mode, static_cast<std::uint32_t>(S_IFDIR | 0750));
  auto node = created("file", "text", folder.nodeid);
  auto link = guest_->link(node, FUSE_ROOT_ID, "second");
  EXPECT_EQ(link.as<fuse_entry_out>().nodeid, node);
  EXPECT_EQ(link.as<fuse_entry_out>().attr.nlink, 2u);
  EXPECT_EQ(
      guest_->ask(FUSE_SYMLINK, FUSE_ROOT_ID, FuseGuest::name("sym") + FuseGuest::name("folder/file")).error,
      0);
  EXPECT_EQ(std::filesystem::read_symlink(grant_ / "sym"), "folder/file");
  EXPECT_EQ(guest_->ask(FUSE_RMDIR, FUSE_ROOT_ID, FuseGuest::name("folder")).error, ENOTEMPTY);
  EXPECT_EQ(guest_->rename(folder.nodeid, "file", FUSE_ROOT_ID, "moved").error, 0);
  EXPECT_EQ(attributes(node).size, 4u) << "found under its new name";
  EXPECT_EQ(guest_->ask(FUSE_UNLINK, FUSE_ROOT_ID, FuseGuest::name("second")).error, 0);
  EXPECT_EQ(attributes(node).nlink, 1u);
  EXPECT_EQ(guest_->ask(FUSE_RMDIR, FUSE_ROOT_ID, FuseGuest::name("folder")).error, 0);
  EXPECT_EQ(guest_->ask(FUSE_UNLINK, FUSE_ROOT_ID, FuseGuest::name("none")).error, ENOENT);
  EXPECT_FALSE(std::filesystem::exists(grant_ / "folder"));
  EXPECT_EQ(read_text(grant_ / "moved"), "text");
}

// How git writes an object: a temporary name, a link to the real one, the temporary name removed.
TEST_F(ReaderChanges, AFileIsWhatItsOtherNameSays) {
  boot(Mode::rw);
  auto folder = guest_->make_folder(FUSE_ROOT_ID, "objects").as<fuse_entry_out>().nodeid;
  auto reply = guest_->create(folder, "temporary", O_RDWR | O_CREAT | O_EXCL, 0444);
  auto node = reply.as<fuse_entry_out>().nodeid;
  fuse_open_out opened;
  std::memcpy(&opened, reply.payload.data() + sizeof(fuse_entry_out), sizeof opened);
  EXPECT_EQ(guest_->write(opened.fh, 0, "object").error, 0);
  EXPECT_EQ(guest_->link(node, folder, "real").error, 0);
  EXPECT_EQ(guest_->ask(FUSE_UNLINK, folder, FuseGuest::name("temporary")).error, 0);
  EXPECT_EQ(guest_->lookup(folder, "real").as<fuse_entry_out>().nodeid, node);
  auto reading = guest_->open(node, O_RDONLY);
  ASSERT_EQ(reading.error, 0);
  EXPECT_EQ(guest_->read(reading.as<fuse_open_out>().fh, 0, 64).payload, "object");
  fuse_setattr_in in{};
  in.valid = FATTR_MODE;
  in.mode = 0640;
  EXPECT_EQ(guest_->ask(FUSE_SETATTR, node, bytes_of(in)).error, 0)
      << "the keeper finds it under the name it has";
  EXPECT_EQ(guest_->open(node, O_WRONLY).error, 0);
}

TEST_F(ReaderChanges, RenameHasItsThreeForms) {
  boot(Mode::rw);
  auto a = created("a", "a"), b = created("b", "b");
  EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "a", FUSE_ROOT_ID, "b", RENAME_NOREPLACE).error, EEXIST);
  EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "a", FUSE_ROOT_ID, "b", RENAME_EXCHANGE).error, 0);
  EXPECT_EQ(read_text(grant_ / "a"), "b");
  EXPECT_EQ(guest_->node("a"), b);
  EXPECT_EQ(guest_->node("b"), a);
  EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "a", FUSE_ROOT_ID, "b", RENAME_WHITEOUT).error, EINVAL);
  fuse_rename_in plain{};
  plain.newdir = FUSE_ROOT_ID;
  EXPECT_EQ(
      guest_->ask(FUSE_RENAME, FUSE_ROOT_ID, bytes_of(plain) + FuseGuest::name("a") + FuseGuest::name("b"))
          .error,
      0);
  EXPECT_EQ(read_text(grant_ / "b"), "b");
  EXPECT_EQ(attributes(b).nlink, 1u);
  EXPECT_EQ(attributes(a).nlink, 0u) << "replaced, and still known to the guest";
}

TEST_F(ReaderChanges, AnUnlinkedFileLivesAsLongAsItIsOpen) {
  boot(Mode::rw);
  auto node = created("temporary", "still here");
  EXPECT_EQ(guest_->ask(FUSE_UNLINK, FUSE_ROOT_ID, FuseGuest::name("temporary")).error, 0);
  EXPECT_EQ(guest_->read(handle_, 0, 64).payload, "still here");
  EXPECT_EQ(guest_->write(handle_, 10, "!").error, 0);
  EXPECT_EQ(attributes(node).nlink, 0u);
  EXPECT_EQ(attributes(node).size, 11u);
  // The name may be taken by another file, which is another node.
  EXPECT_NE(created("temporary", "other"), node);
  EXPECT_EQ(attributes(node).size, 11u);
}

TEST_F(ReaderChanges, AttributesModesAndTimes) {
  boot(Mode::rw);
  auto node = created("file", "0123456789");
  fuse_setattr_in in{};
  in.valid = FATTR_MODE | FATTR_MTIME | FATTR_ATIME;
  in.mode = 0755;
  in.mtime = 1000000000;
  in.mtimensec = 123456789;
  in.atime = 1000000001;
  auto reply = guest_->ask(FUSE_SETATTR, node, bytes_of(in)).as<fuse_attr_out>();
  EXPECT_EQ(reply.attr.mode, static_cast<std::uint32_t>(S_IFREG | 0755));
  EXPECT_EQ(reply.attr.mtime, 1000000000u);
  EXPECT_EQ(reply.attr.mtimensec, 123456789u);
  EXPECT_EQ(guest_->set_size(node, 4).as<fuse_attr_out>().attr.size, 4u);
  EXPECT_EQ(read_text(grant_ / "file"), "0123");
  EXPECT_EQ(guest_->set_size(node, 8).error, 0);
  EXPECT_EQ(read_text(grant_ / "file"), std::string("0123\0\0\0\0", 8));
  in = {};
  in.valid = FATTR_MTIME | FATTR_MTIME_NOW;
  EXPECT_GT(guest_->ask(FUSE_SETATTR, node, bytes_of(in)).as<fuse_attr_out>().attr.mtime, 1600000000u);
  // No time at all: the guest is told so, and the keeper, which would end the connection, is not asked.
  in.valid = FATTR_MTIME;
  in.mtimensec = 1'000'000'000;
  EXPECT_EQ(guest_->ask(FUSE_SETATTR, node, bytes_of(in)).error, EINVAL);
  EXPECT_EQ(guest_->make_folder(FUSE_ROOT_ID, "folder").error, 0);
}

TEST_F(ReaderChanges, OwnersNeverChange) {
  boot(Mode::rw);
  auto node = created("file", "");
  struct stat before, after;
  ASSERT_EQ(stat((grant_ / "file").c_str(), &before), 0);
  fuse_setattr_in in{};
  in.valid = FATTR_UID | FATTR_GID;
  in.uid = in.gid = 0;
  EXPECT_EQ(guest_->ask(FUSE_SETATTR, node, bytes_of(in)).error, EPERM);
  in.uid = in.gid = 1000;
  EXPECT_EQ(guest_->ask(FUSE_SETATTR, node, bytes_of(in)).error, 0) << "it is the guest user's already";
  ASSERT_EQ(stat((grant_ / "file").c_str(), &after), 0);
  EXPECT_EQ(before.st_uid, after.st_uid);
  EXPECT_EQ(before.st_gid, after.st_gid);
}

TEST_F(ReaderChanges, DevicesFifosAndPrivilegesAreRefused) {
  boot(Mode::rw);
  EXPECT_EQ(guest_->make_node(FUSE_ROOT_ID, "device", S_IFCHR | 0666, 0x103).error, EPERM);
  EXPECT_EQ(guest_->make_node(FUSE_ROOT_ID, "disk", S_IFBLK | 0666, 0x800).error, EPERM);
  EXPECT_EQ(guest_->make_node(FUSE_ROOT_ID, "fifo", S_IFIFO | 0666).error, EPERM);
  EXPECT_EQ(guest_->make_node(FUSE_ROOT_ID, "socket", S_IFSOCK | 0666).error, EPERM);
  EXPECT_EQ(guest_->make_node(FUSE_ROOT_ID, "file", S_IFREG | 0640).error, 0);
  EXPECT_EQ(report_of(ReportKind::refused)->path, "device");
  guest_->create(FUSE_ROOT_ID, "privileged", O_WRONLY | O_CREAT, 06755);
  struct stat info;
  if (stat((grant_ / "privileged").c_str(), &info) == 0) {
    EXPECT_EQ(info.st_mode & 07000, 0u);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(grant_), {}), 2);
}

TEST_F(ReaderChanges, UserAttributes) {
  boot(Mode::rw);
  auto node = created("file", "");
  struct {
    std::uint32_t size = 5, flags = 0;
  } in;
  auto set = guest_->ask(FUSE_SETXATTR, node, bytes_of(in) + FuseGuest::name("user.colour") + "green");
  if (set.error == EOPNOTSUPP) GTEST_SKIP() << "no user xattrs here";
  EXPECT_EQ(set.error, 0);
  EXPECT_EQ(guest_->get_xattr(node, "user.colour", 64).payload, "green");
  in.flags = XATTR_CREATE;
  EXPECT_EQ(guest_->ask(FUSE_SETXATTR, node, bytes_of(in) + FuseGuest::name("user.colour") + "green").error,
            EEXIST);
  EXPECT_EQ(
      guest_->ask(FUSE_SETXATTR, node, bytes_of(in) + FuseGuest::name("security.capability") + "green").error,
      EOPNOTSUPP);
  EXPECT_EQ(guest_->ask(FUSE_REMOVEXATTR, node, FuseGuest::name("user.colour")).error, 0);
  EXPECT_EQ(guest_->get_xattr(node, "user.colour", 64).error, ENODATA);
  EXPECT_EQ(guest_->ask(FUSE_REMOVEXATTR, node, FuseGuest::name("trusted.x")).error, EOPNOTSUPP);
}

TEST_F(ReaderChanges, CopiesRangesAndAllocates) {
  write_text(grant_ / "source", "0123456789");
  boot(Mode::rw);
  auto source = guest_->handle(guest_->node("source"), O_RDONLY);
  auto node = created("target", "");
  fuse_copy_file_range_in in{};
  in.fh_in = source;
  in.off_in = 2;
  in.nodeid_out = node;
  in.fh_out = handle_;
  in.len = 5;
  EXPECT_EQ(guest_->ask(FUSE_COPY_FILE_RANGE, 0, bytes_of(in)).as<fuse_write_out>().size, 5u);
  EXPECT_EQ(read_text(grant_ / "target"), "23456");
  std::swap(in.fh_in, in.fh_out);
  EXPECT_EQ(guest_->ask(FUSE_COPY_FILE_RANGE, 0, bytes_of(in)).error, EBADF)
      << "into a file opened for reading";
  fuse_fallocate_in allocate{};
  allocate.fh = handle_;
  allocate.length = 1000;
  EXPECT_EQ(guest_->ask(FUSE_FALLOCATE, node, bytes_of(allocate)).error, 0);
  EXPECT_EQ(attributes(node).size, 1000u);
  allocate.mode = 0x4000;
  EXPECT_EQ(guest_->ask(FUSE_FALLOCATE, node, bytes_of(allocate)).error, EOPNOTSUPP);
  allocate.mode = 0;
  allocate.fh = source;
  EXPECT_EQ(guest_->ask(FUSE_FALLOCATE, node, bytes_of(allocate)).error, EBADF);
}

TEST_F(ReaderChanges, HiddenNamesCannotBeMade) {
  write_text(grant_ / "plain", "x");
  boot(Mode::rw);
  auto node = guest_->node("plain");
  EXPECT_EQ(guest_->create(FUSE_ROOT_ID, ".env", O_WRONLY | O_CREAT).error, EACCES);
  EXPECT_EQ(guest_->make_folder(FUSE_ROOT_ID, ".SSH").error, EACCES);
  EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "plain", FUSE_ROOT_ID, "id_rsa").error, EACCES);
  EXPECT_EQ(guest_->link(node, FUSE_ROOT_ID, "server.pem").error, EACCES);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(grant_), {}), 1);
}

TEST_F(ReaderChanges, WithoutAKeeperEveryChangeIsRefused) {
  write_text(grant_ / "file", "as it was");
  std::filesystem::create_directory(grant_ / "folder");
  boot(Mode::ro);
  auto node = guest_->node("file");
  auto handle = guest_->handle(node, O_RDONLY);
  struct {
    std::uint32_t size = 1, flags = 0;
  } xattr;
  fuse_setattr_in mode{};
  mode.valid = FATTR_MODE;
  mode.mode = 0777;
  EXPECT_EQ(guest_->open(node, O_WRONLY).error, EROFS);
  EXPECT_EQ(guest_->open(node, O_RDWR).error, EROFS);
  EXPECT_EQ(guest_->open(node, O_RDONLY | O_TRUNC).error, EROFS);
  EXPECT_EQ(guest_->write(handle, 0, "no").error, EBADF);
  EXPECT_EQ(guest_->create(FUSE_ROOT_ID, "new", O_WRONLY | O_CREAT).error, EROFS);
  EXPECT_EQ(guest_->make_node(FUSE_ROOT_ID, "new", S_IFREG | 0644).error, EROFS);
  EXPECT_EQ(guest_->make_folder(FUSE_ROOT_ID, "new").error, EROFS);
  EXPECT_EQ(guest_->ask(FUSE_SYMLINK, FUSE_ROOT_ID, FuseGuest::name("new") + FuseGuest::name("x")).error,
            EROFS);
  EXPECT_EQ(guest_->link(node, FUSE_ROOT_ID, "new").error, EROFS);
  EXPECT_EQ(guest_->ask(FUSE_UNLINK, FUSE_ROOT_ID, FuseGuest::name("file")).error, EROFS);
  EXPECT_EQ(guest_->ask(FUSE_RMDIR, FUSE_ROOT_ID, FuseGuest::name("folder")).error, EROFS);
  EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "file", FUSE_ROOT_ID, "new").error, EROFS);
  EXPECT_EQ(guest_->set_size(node, 0).error, EROFS);
  EXPECT_EQ(guest_->ask(FUSE_SETATTR, node, bytes_of(mode)).error, EROFS);
  EXPECT_EQ(guest_->ask(FUSE_SETXATTR, node, bytes_of(xattr) + FuseGuest::name("user.x") + "x").error, EROFS);
  EXPECT_EQ(guest_->ask(FUSE_REMOVEXATTR, node, FuseGuest::name("user.x")).error, EROFS);
  auto report = report_of(ReportKind::refused);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->path, "file");
  EXPECT_EQ(report->error, EROFS);
  EXPECT_EQ(read_text(grant_ / "file"), "as it was");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(grant_), {}), 2);
}

TEST_F(ReaderChanges, WhenTheKeeperIsGoneChangesFailAndReadingGoesOn) {
  write_text(grant_ / "file", "x");
  boot(Mode::rw);
  auto handle = guest_->handle(guest_->node("file"), O_RDONLY);
  keeper_->child->kill(SIGKILL);
  keeper_->child->wait();
  EXPECT_EQ(guest_->make_folder(FUSE_ROOT_ID, "folder").error, EIO);
  EXPECT_EQ(guest_->read(handle, 0, 16).payload, "x");
  EXPECT_FALSE(std::filesystem::exists(grant_ / "folder"));
}

}  // namespace
}  // namespace anchorhold::mounts
