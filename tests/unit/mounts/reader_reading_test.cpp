// What the guest can find and read, each operation on a real folder.
#include <algorithm>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <thread>

#include "reader_fixture.h"

namespace anchorhold::mounts {
namespace {

using testing::bytes_of;
using testing::FuseGuest;
using testing::read_text;
using testing::ReaderTest;
using testing::write_text;

class ReaderReading : public ReaderTest {};

TEST_F(ReaderReading, InitNegotiatesWhatIsOfferedAndNoMore) {
  start(Mode::ro);
  auto reply = guest_->init(38, ~0u);
  ASSERT_EQ(reply.error, 0);
  auto out = reply.as<fuse_init_out>();
  EXPECT_EQ(out.major, 7u);
  EXPECT_EQ(out.minor, 38u);
  EXPECT_TRUE(out.flags & FUSE_DO_READDIRPLUS);
  EXPECT_FALSE(out.flags & FUSE_READDIRPLUS_AUTO);
  EXPECT_TRUE(out.flags & FUSE_AUTO_INVAL_DATA);
  EXPECT_FALSE(out.flags & (FUSE_WRITEBACK_CACHE | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_EXPORT_SUPPORT |
                            FUSE_POSIX_ACL | FUSE_SUBMOUNTS | FUSE_SETXATTR_EXT));
  EXPECT_EQ(out.max_write, 1u << 20);
  EXPECT_EQ(guest_->init(31, FUSE_BIG_WRITES).as<fuse_init_out>().flags, std::uint32_t{FUSE_BIG_WRITES});
  EXPECT_EQ(guest_->init(30).error, EPROTO);
}

// What our guest's kernel alone knows is promised to nobody else.
TEST_F(ReaderReading, WhatNeedNotBeAskedIsPromisedToWhoUnderstandsIt) {
  start(Mode::ro);
  constexpr std::uint32_t known_answers = 1u << 31;
  auto promised = [&](std::uint32_t flags, std::uint32_t flags2) {
    auto out = guest_->init(36, flags, flags2).as<fuse_init_out>();
    return (out.flags & FUSE_INIT_EXT ? 2 : 0) + (out.flags2 == known_answers ? 1
                                                  : out.flags2 == 0           ? 0
                                                                              : 100);
  };
  EXPECT_EQ(promised(FUSE_INIT_EXT, ~0u), 3);
  EXPECT_EQ(promised(FUSE_INIT_EXT, ~known_answers), 0);
  EXPECT_EQ(promised(0, ~0u), 0);
}

TEST_F(ReaderReading, LookupAndAttributesShowTheFileAsTheGuestUsersOwn) {
  write_text(grant_ / "file", "hello");
  chmod((grant_ / "file").c_str(), 06754);
  boot(Mode::ro);
  auto entry = guest_->lookup(FUSE_ROOT_ID, "file").as<fuse_entry_out>();
  EXPECT_NE(entry.nodeid, 0u);
  EXPECT_EQ(entry.attr.size, 5u);
  EXPECT_EQ(entry.attr.mode, static_cast<std::uint32_t>(S_IFREG | 0754)) << "setuid and setgid are not shown";
  EXPECT_EQ(entry.attr.uid, 1000u);
  EXPECT_EQ(entry.attr.gid, 1000u);
  EXPECT_LE(entry.entry_valid, 1u);
  EXPECT_LE(entry.attr_valid, 1u);
  auto attributes = guest_->attributes(entry.nodeid).as<fuse_attr_out>();
  struct stat info;
  ASSERT_EQ(stat((grant_ / "file").c_str(), &info), 0);
  EXPECT_EQ(attributes.attr.ino, info.st_ino);
  EXPECT_EQ(attributes.attr.mtime, static_cast<std::uint64_t>(info.st_mtim.tv_sec));
  EXPECT_EQ(attributes.attr.mtimensec, static_cast<std::uint32_t>(info.st_mtim.tv_nsec));
  EXPECT_EQ(guest_->lookup(FUSE_ROOT_ID, "none").as<fuse_entry_out>().nodeid, 0u)
      << "an absence may be remembered";
  EXPECT_EQ(guest_->lookup(entry.nodeid, "below").error, ENOTDIR);
}

TEST_F(ReaderReading, ReadsAtAnyOffsetAndEndsAtTheEnd) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i);
  write_text(grant_ / "file", text);
  boot(Mode::ro);
  auto handle = guest_->handle(guest_->node("file"), O_RDONLY);
  EXPECT_EQ(guest_->read(handle, 0, 4096).payload, text.substr(0, 4096));
  EXPECT_EQ(guest_->read(handle, 777, 65536).payload, text.substr(777, 65536));
  EXPECT_EQ(guest_->read(handle, text.size() - 3, 4096).payload, text.substr(text.size() - 3));
  auto behind = guest_->read(handle, text.size() + 100, 4096);
  EXPECT_EQ(behind.error, 0);
  EXPECT_TRUE(behind.payload.empty());
  EXPECT_EQ(guest_->read(handle, ~0ull, 16).error, EINVAL);
  EXPECT_EQ(guest_->read(handle + 1, 0, 16).error, EBADF);
  fuse_release_in release{};
  release.fh = handle;
  EXPECT_EQ(guest_->ask(FUSE_RELEASE, 0, bytes_of(release)).error, 0);
  EXPECT_EQ(guest_->read(handle, 0, 16).error, EBADF);
}

TEST_F(ReaderReading, SymlinksAreGivenAndNeverFollowed) {
  std::filesystem::create_symlink("/etc/passwd", grant_ / "out");
  std::filesystem::create_directory_symlink(directory_->path() / "outside", grant_ / "folder");
  write_text(directory_->path() / "outside" / "secret", "x");
  boot(Mode::ro);
  auto link = guest_->node("out");
  EXPECT_EQ(guest_->ask(FUSE_READLINK, link).payload, "/etc/passwd");
  EXPECT_EQ(guest_->open(link, O_RDONLY).error, EACCES);
  auto folder = guest_->node("folder");
  EXPECT_EQ(guest_->lookup(folder, "secret").error, ENOTDIR);
  EXPECT_EQ(guest_->open(folder, O_RDONLY, FUSE_OPENDIR).error, ENOTDIR);
  EXPECT_EQ(guest_->ask(FUSE_READLINK, FUSE_ROOT_ID).error, EINVAL);
}

TEST_F(ReaderReading, FifosSocketsAndDevicesAreSeenAndNeverOpened) {
  ASSERT_EQ(mkfifo((grant_ / "fifo").c_str(), 0644), 0);
  boot(Mode::ro);
  auto reply = guest_->lookup(FUSE_ROOT_ID, "fifo");
  EXPECT_TRUE(S_ISFIFO(reply.as<fuse_entry_out>().attr.mode));
  EXPECT_EQ(guest_->open(reply.as<fuse_entry_out>().nodeid, O_RDONLY).error, EACCES);
}

TEST_F(ReaderReading, ListsEveryNameOnceInPagesOfAnySize) {
  std::set<std::string> expected{".", ".."};
  for (int i = 0; i < 700; ++i) {
    expected.insert("entry-" + std::to_string(i) + std::string(static_cast<std::size_t>(i % 200), 'x'));
  }
  for (const auto& name : expected)
    if (name[0] != '.') write_text(grant_ / name, "");
  boot(Mode::ro);
  for (auto opcode : {FUSE_READDIR, FUSE_READDIRPLUS}) {
    for (std::uint32_t page : {512u, 4096u, 100000u}) {
      auto names = guest_->list(FUSE_ROOT_ID, opcode, page);
      ASSERT_EQ(names.size(), expected.size()) << page;
      for (const auto& [name, node] : names) {
        EXPECT_TRUE(expected.count(name)) << name;
        if (opcode == FUSE_READDIRPLUS && name[0] != '.') {
          EXPECT_NE(node, 0u) << name;
        }
      }
    }
  }
  auto handle = guest_->handle(FUSE_ROOT_ID, 0, FUSE_OPENDIR);
  EXPECT_EQ(guest_->ask(FUSE_READDIR, 1, FuseGuest::read_arguments(handle, 0, 16)).error, EINVAL)
      << "no room for one entry";
}

TEST_F(ReaderReading, NamesMayHoldAnyByte) {
  for (int byte = 1; byte < 256; ++byte)
    if (byte != '/' && byte != '.')
      write_text(grant_ / std::string(1, static_cast<char>(byte)), std::to_string(byte));
  write_text(grant_ / std::string(255, 'n'), "long");
  boot(Mode::ro);
  EXPECT_EQ(guest_->list(FUSE_ROOT_ID, FUSE_READDIR).size(), 2u + 253u + 1u);
  for (int byte : {1, 10, 31, 127, 128, 255})
    EXPECT_NE(guest_->node(std::string(1, static_cast<char>(byte))), 0u) << byte;
  EXPECT_NE(guest_->node(std::string(255, 'n')), 0u);
  EXPECT_EQ(guest_->lookup(FUSE_ROOT_ID, std::string(256, 'n')).error, ENAMETOOLONG);
}

TEST_F(ReaderReading, UserAttributesOnly) {
  write_text(grant_ / "file", "");
  if (setxattr((grant_ / "file").c_str(), "user.colour", "green", 5, 0) != 0)
    GTEST_SKIP() << "no user xattrs here";
  boot(Mode::ro);
  auto node = guest_->node("file");
  EXPECT_EQ(guest_->get_xattr(node, "user.colour", 64).payload, "green");
  EXPECT_EQ(guest_->get_xattr(node, "user.colour", 0).as<fuse_getxattr_out>().size, 5u);
  EXPECT_EQ(guest_->get_xattr(node, "user.colour", 2).error, ERANGE);
  EXPECT_EQ(guest_->get_xattr(node, "user.none", 64).error, ENODATA);
  for (const char* name : {"security.capability", "trusted.x", "system.posix_acl_access"})
    EXPECT_EQ(guest_->get_xattr(node, name, 64).error, EOPNOTSUPP) << name;
  fuse_getxattr_in in{};
  in.size = 256;
  EXPECT_EQ(guest_->ask(FUSE_LISTXATTR, node, bytes_of(in)).payload, std::string("user.colour\0", 12));
}

TEST_F(ReaderReading, HolesStatisticsAndSyncing) {
  {
    UniqueFd file(open((grant_ / "sparse").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_EQ(ftruncate(file.get(), 10ll << 40), 0);
    ASSERT_EQ(pwrite(file.get(), "x", 1, 5ll << 40), 1);
  }
  boot(Mode::ro);
  auto node = guest_->node("sparse");
  EXPECT_EQ(guest_->attributes(node).as<fuse_attr_out>().attr.size, std::uint64_t{10} << 40);
  auto handle = guest_->handle(node, O_RDONLY);
  fuse_lseek_in in{};
  in.fh = handle;
  in.whence = SEEK_DATA;
  auto data = guest_->ask(FUSE_LSEEK, node, bytes_of(in)).as<fuse_lseek_out>().offset;
  EXPECT_GT(data, 0u);
  EXPECT_LE(data, std::uint64_t{5} << 40);
  in.whence = SEEK_SET;
  EXPECT_EQ(guest_->ask(FUSE_LSEEK, node, bytes_of(in)).error, EINVAL);
  EXPECT_EQ(guest_->read(handle, 5ull << 40, 1).payload, "x");
  struct statvfs info;
  ASSERT_EQ(statvfs(grant_.c_str(), &info), 0);
  EXPECT_EQ(guest_->ask(FUSE_STATFS, FUSE_ROOT_ID).as<fuse_statfs_out>().st.blocks, info.f_blocks);
  fuse_fsync_in sync{};
  sync.fh = handle;
  EXPECT_EQ(guest_->ask(FUSE_FSYNC, node, bytes_of(sync)).error, 0);
  sync.fh = guest_->handle(FUSE_ROOT_ID, 0, FUSE_OPENDIR);
  EXPECT_EQ(guest_->ask(FUSE_FSYNCDIR, FUSE_ROOT_ID, bytes_of(sync)).error, 0);
}

TEST_F(ReaderReading, WhatIsNotOfferedSaysSo) {
  boot(Mode::ro);
  for (auto opcode : {FUSE_GETLK, FUSE_SETLK, FUSE_SETLKW, FUSE_ACCESS, FUSE_BMAP, FUSE_IOCTL, FUSE_POLL,
                      FUSE_SETUPMAPPING, FUSE_REMOVEMAPPING, FUSE_SYNCFS, FUSE_TMPFILE})
    EXPECT_EQ(guest_->ask(opcode, FUSE_ROOT_ID, std::string(64, '\0')).error, ENOSYS) << opcode;
  EXPECT_EQ(guest_->ask(999, FUSE_ROOT_ID).error, ENOSYS) << "an operation of a later kernel";
  EXPECT_EQ(guest_->ask(FUSE_FLUSH, FUSE_ROOT_ID, std::string(sizeof(fuse_flush_in), '\0')).error, ENOSYS);
}

TEST_F(ReaderReading, HiddenNamesDoNotExist) {
  for (const char* name : {".env", ".env.local", "server.pem", "id_rsa", "seen"})
    write_text(grant_ / name, "x");
  std::filesystem::create_directory(grant_ / ".ssh");
  boot(Mode::ro);
  for (const char* name : {".env", ".ENV", ".env.local", "server.pem", "id_rsa", ".ssh"})
    EXPECT_EQ(guest_->node(name), 0u) << name;
  auto names = guest_->list(FUSE_ROOT_ID, FUSE_READDIRPLUS);
  EXPECT_EQ(names.size(), 3u);
  EXPECT_TRUE(names.count("seen"));
}

TEST_F(ReaderReading, AGrantedFileIsAllThereIs) {
  for (const char* name : {"one", "two"}) write_text(grant_ / name, name);
  boot(Mode::ro, {"--only-file", "one"});
  EXPECT_NE(guest_->node("one"), 0u);
  EXPECT_EQ(guest_->node("two"), 0u);
  EXPECT_EQ(guest_->list(FUSE_ROOT_ID, FUSE_READDIR).size(), 3u);
}

TEST_F(ReaderReading, PagesAreKeptOnlyWhileTheFileIsTheSame) {
  write_text(grant_ / "file", "one");
  const timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (grant_ / "file").c_str(), old, 0), 0);
  boot(Mode::ro);
  auto node = guest_->node("file");
  auto keeps = [&] {
    return (guest_->open(node, O_RDONLY).as<fuse_open_out>().open_flags & FOPEN_KEEP_CACHE) != 0;
  };
  EXPECT_FALSE(keeps()) << "the guest has no pages yet";
  EXPECT_FALSE(keeps())
      << "it changed less than one step of the clock ago: the next change may look the same";
  write_text(grant_ / "file", "two");
  EXPECT_EQ(guest_->open(node, O_RDONLY).error, ESTALE) << "what the guest believes of it is not so any more";
  EXPECT_EQ(guest_->node("file"), node);
  EXPECT_FALSE(keeps());
}

// A kernel that is refused with ESTALE looks the path up again and comes back, once.
TEST_F(ReaderReading, AnOpenOfWhatTheHostChangedIsLookedUpAgain) {
  write_text(grant_ / "file", "one");
  boot(Mode::ro);
  auto node = guest_->node("file");
  for (const char* text : {"second", "third one", "fourth"}) {
    write_text(grant_ / "file", text);
    EXPECT_EQ(guest_->open(node, O_RDONLY).error, ESTALE);
    EXPECT_EQ(guest_->node("file"), node);
    EXPECT_EQ(guest_->read(guest_->handle(node, O_RDONLY), 0, 100).payload, text);
  }
  // Who comes again without having looked is not refused for ever.
  write_text(grant_ / "file", "and one more");
  EXPECT_EQ(guest_->open(node, O_RDONLY).error, ESTALE);
  EXPECT_EQ(guest_->open(node, O_RDONLY).error, 0);
  // The name means another file by now.
  write_text(grant_ / "new", "replaced");
  std::filesystem::rename(grant_ / "new", grant_ / "file");
  EXPECT_EQ(guest_->open(node, O_RDONLY).error, ESTALE);
  auto again = guest_->node("file");
  EXPECT_NE(again, node);
  EXPECT_EQ(guest_->read(guest_->handle(again, O_RDONLY), 0, 100).payload, "replaced");
}

// A kernel looks a path up a second time when it is refused, and never a third time. So what a lookup found
// can be asked about and opened, however often the host replaces it meanwhile, and whatever was refused
// before.
TEST_F(ReaderReading, AFileThatIsReplacedAllTheTimeCanBeOpened) {
  write_text(grant_ / "file", "text 0");
  boot(Mode::ro);
  int version = 0;
  auto replace = [&] {
    write_text(grant_ / "new", "text " + std::to_string(++version));
    std::filesystem::rename(grant_ / "new", grant_ / "file");
  };
  auto second_try = [&] {
    replace();
    auto node = guest_->node("file");
    const std::string found = "text " + std::to_string(version);
    replace();
    EXPECT_EQ(guest_->attributes(node).as<fuse_attr_out>().attr.size, found.size());
    replace();
    auto handle = guest_->handle(node, O_RDONLY);
    EXPECT_EQ(guest_->read(handle, 0, 100).payload, found);
    guest_->release(handle);
  };
  for (int round = 0; round < 10; ++round) {
    // Refused at the open: the guest knew the file before it was replaced.
    auto node = guest_->node("file");
    replace();
    EXPECT_EQ(guest_->open(node, O_RDONLY).error, ESTALE);
    second_try();
    // Refused before the open, when its kernel asks for attributes: the guest knew it from a listing.
    auto listed = guest_->list(FUSE_ROOT_ID, FUSE_READDIRPLUS).at("file");
    replace();
    EXPECT_EQ(guest_->attributes(listed).error, ESTALE);
    second_try();
  }
}

// Also when its name is gone, and with it the reader's own way to it.
TEST_F(ReaderReading, WhatIsOpenInTheGuestStaysReachable) {
  constexpr int more_than_are_held = 4200;
  write_text(grant_ / "file", "text");
  for (int i = 0; i < more_than_are_held; ++i) write_text(grant_ / ("other" + std::to_string(i)), "");
  boot(Mode::ro);
  auto node = guest_->node("file");
  auto handle = guest_->handle(node, O_RDONLY);
  std::filesystem::remove(grant_ / "file");
  for (int i = 0; i < more_than_are_held; ++i) ASSERT_NE(guest_->node("other" + std::to_string(i)), 0u);
  auto attributes = guest_->attributes(node);
  EXPECT_EQ(attributes.error, 0) << "fstat() of an open file names no handle";
  EXPECT_EQ(attributes.as<fuse_attr_out>().attr.size, 4u);
  // As through /proc/self/fd.
  EXPECT_EQ(guest_->open(node, O_RDONLY).error, ESTALE);
  EXPECT_EQ(guest_->open(node, O_RDONLY).error, 0);
  EXPECT_EQ(guest_->read(handle, 0, 100).payload, "text");
}

TEST_F(ReaderReading, HostEditsAreSeenByWhoHoldsTheFileOpen) {
  write_text(grant_ / "file", std::string(5000, 'a'));
  boot(Mode::ro);
  auto node = guest_->node("file");
  auto handle = guest_->handle(node, O_RDONLY);
  write_text(grant_ / "file", "short");
  EXPECT_EQ(guest_->read(handle, 0, 8192).payload, "short") << "no stale tail";
  EXPECT_EQ(guest_->attributes(node).as<fuse_attr_out>().attr.size, 5u);
  // Replaced by rename: the open file stays what it was, the name means the new one.
  write_text(grant_ / "new", "replaced");
  std::filesystem::rename(grant_ / "new", grant_ / "file");
  EXPECT_EQ(guest_->read(handle, 0, 8192).payload, "short");
  auto again = guest_->node("file");
  EXPECT_NE(again, node);
  EXPECT_EQ(guest_->read(guest_->handle(again, O_RDONLY), 0, 8192).payload, "replaced");
}

TEST_F(ReaderReading, RequestsInFlightAreServedSideBySide) {
  std::vector<std::uint64_t> handles;
  for (int i = 0; i < 16; ++i)
    write_text(grant_ / std::to_string(i), std::string(100000, static_cast<char>('a' + i)));
  boot(Mode::ro);
  for (int i = 0; i < 16; ++i) handles.push_back(guest_->handle(guest_->node(std::to_string(i)), O_RDONLY));
  for (int round = 0; round < 20; ++round) {
    std::vector<unsigned> slots;
    for (auto handle : handles)
      slots.push_back(guest_->submit(
          FuseGuest::request(FUSE_READ, 0, FuseGuest::read_arguments(handle, 0, 100000)), 100016));
    for (std::size_t i = 0; i < slots.size(); ++i)
      EXPECT_EQ(guest_->wait(slots[i]).payload, std::string(100000, static_cast<char>('a' + i)));
  }
}

TEST_F(ReaderReading, TheGuestMayStartOver) {
  write_text(grant_ / "file", "x");
  boot(Mode::ro);
  auto node = guest_->node("file");
  auto handle = guest_->handle(node, O_RDONLY);
  EXPECT_EQ(guest_->ask(FUSE_DESTROY, 0).error, 0);
  ASSERT_EQ(guest_->init().error, 0);
  EXPECT_EQ(guest_->attributes(node).error, ESTALE);
  EXPECT_EQ(guest_->read(handle, 0, 1).error, EBADF);
  EXPECT_NE(guest_->node("file"), 0u);
}

TEST_F(ReaderReading, ForgottenNodesAreGone) {
  write_text(grant_ / "file", "x");
  boot(Mode::ro);
  auto node = guest_->node("file");
  EXPECT_EQ(guest_->node("file"), node);
  guest_->forget(node);
  EXPECT_EQ(guest_->attributes(node).error, 0) << "looked up twice, forgotten once";
  fuse_batch_forget_in batch{};
  batch.count = 2;
  fuse_forget_one one{}, other{};
  one.nodeid = node;
  one.nlookup = 1;
  other.nodeid = 4711;
  other.nlookup = 1;
  EXPECT_FALSE(
      guest_
          ->send(FuseGuest::request(FUSE_BATCH_FORGET, 0, bytes_of(batch) + bytes_of(one) + bytes_of(other)),
                 0, FuseGuest::urgent)
          .answered);
  EXPECT_EQ(guest_->attributes(node).error, ESTALE);
  guest_->forget(FUSE_ROOT_ID, 1000);
  EXPECT_EQ(guest_->attributes(FUSE_ROOT_ID).error, 0);
}

}  // namespace
}  // namespace anchorhold::mounts
