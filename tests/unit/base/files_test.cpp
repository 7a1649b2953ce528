#include "base/files.h"

#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace anchorhold {
namespace {

TEST(Files, ReplacedWholeAndReadBack) {
  auto folder = *TemporaryDirectory::create();
  auto path = folder.path() / "state";
  ASSERT_TRUE(write_file_atomic(path, "one"));
  ASSERT_TRUE(write_file_atomic(path, "two"));
  EXPECT_EQ(*read_file(path, 100), "two");
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, LimitsAndKindsAreChecked) {
  auto folder = *TemporaryDirectory::create();
  auto path = folder.path() / "state";
  std::ofstream(path) << std::string(100, 'x');
  EXPECT_EQ(read_file(path, 100)->size(), 100u);
  EXPECT_EQ(read_file(path, 99).error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(read_file(folder.path(), 99).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(read_file(folder.path() / "none", 99).error().code, ErrorCode::not_found);
  ASSERT_EQ(mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_file(folder.path() / "fifo", 99).error().code, ErrorCode::invalid_argument);
}

TEST(Files, AFailedWriteLeavesTheOldFileAndNothingElse) {
  auto folder = *TemporaryDirectory::create();
  std::filesystem::create_directory(folder.path() / "target");
  std::ofstream(folder.path() / "target" / "inside") << "x";
  EXPECT_FALSE(write_file_atomic(folder.path() / "target", "text"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, LocksExcludeEachOther) {
  auto folder = *TemporaryDirectory::create();
  {
    auto held = FileLock::acquire(folder.path() / "lock", FileLock::Wait::no);
    ASSERT_TRUE(held);
    EXPECT_EQ(FileLock::acquire(folder.path() / "lock", FileLock::Wait::no).error().code,
              ErrorCode::unavailable);
  }
  EXPECT_TRUE(FileLock::acquire(folder.path() / "lock", FileLock::Wait::no));
}

TEST(Descriptors, TravelBetweenProcessesWithTheirMessage) {
  auto [left, right] = *socket_pair(SOCK_SEQPACKET);
  Pipe pipe = *make_pipe();
  std::array message{std::byte{1}, std::byte{2}};
  int fd = pipe.write_end.get();
  ASSERT_TRUE(send_with_descriptors(left.get(), message, {&fd, 1}));
  std::array<std::byte, 16> buffer;
  auto received = receive_with_descriptors(right.get(), buffer);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->size, 2u);
  ASSERT_EQ(received->descriptors.size(), 1u);
  ASSERT_TRUE(write_all(received->descriptors[0].get(), message));
  EXPECT_EQ(*read_full(pipe.read_end.get(), std::span(buffer).first(2)), 2u);
  EXPECT_NE(fcntl(received->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  std::array<std::byte, 1> small;
  ASSERT_TRUE(send_with_descriptors(left.get(), message, {}));
  EXPECT_EQ(receive_with_descriptors(right.get(), small).error().code, ErrorCode::data_loss);
}

TEST(Descriptors, MessagesThatCannotBePassedAtOnceSaySo) {
  auto [left, right] = *socket_pair(SOCK_SEQPACKET);
  std::array<std::byte, 512> message{}, buffer;
  auto nothing = receive_message_now(right.get(), buffer);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(*nothing);
  const int fd = left.get();
  std::size_t sent = 0;
  Status status;
  for (; (status = send_message_now(left.get(), message, {&fd, 1})); ++sent) ASSERT_LT(sent, 100'000u);
  EXPECT_EQ(status.error().code, ErrorCode::resource_exhausted);
  EXPECT_GT(sent, 0u);
  for (std::size_t i = 0; i < sent; ++i) {
    auto received = receive_message_now(right.get(), buffer);
    ASSERT_TRUE(received && *received);
    EXPECT_EQ((*received)->size, message.size());
    EXPECT_EQ((*received)->descriptors.size(), 1u);
  }
  ASSERT_TRUE(send_message_now(left.get(), message, {}));
  std::array<std::byte, 511> small;
  EXPECT_EQ(receive_message_now(right.get(), small).error().code, ErrorCode::data_loss);
  // A process that may open no more descriptors gets the message, and is told.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  ASSERT_TRUE(send_message_now(left.get(), message, {&fd, 1}));
  rlimit none = files;
  none.rlim_cur = 3;
  setrlimit(RLIMIT_NOFILE, &none);
  auto without = receive_message_now(right.get(), buffer);
  setrlimit(RLIMIT_NOFILE, &files);
  ASSERT_TRUE(without && *without);
  EXPECT_TRUE((*without)->lost_descriptors);
  EXPECT_TRUE((*without)->descriptors.empty());
  right.reset();
  EXPECT_EQ(send_message_now(left.get(), message, {}).error().code, ErrorCode::unavailable);
  EXPECT_EQ(receive_message_now(left.get(), buffer).error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace anchorhold
