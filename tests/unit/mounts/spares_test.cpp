// Devices that wait for a folder: the real process that keeps their places, a real reader that takes one, and
// the guest's driver in front of it.
#include "mounts/spares.h"

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/seal.h"
#include "mounts/grant.h"
#include "reader_fixture.h"
#include "spares/spares_program.h"

namespace anchorhold::mounts::testing {
namespace {

UniqueFd connect(const std::filesystem::path& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path;
  return fd;
}

class SparesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = TemporaryDirectory::create("anchorhold-spares");
    ASSERT_TRUE(made);
    directory_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    for (const char* name : {"one", "two"}) {
      std::filesystem::create_directory(directory_->path() / name);
      write_text(directory_->path() / name / "file", name);
    }
    SparesSpec spec;
    spec.folder = directory_->path();
    spec.count = 3;
    spec.allow_weak = landlock_abi() == 0;
    spec.on_notice = [this](const ShareNotice& notice) {
      std::lock_guard lock(mutex_);
      notices_.push_back(notice);
      changed_.notify_all();
    };
    auto spares = Spares::start(std::move(spec));
    ASSERT_TRUE(spares) << spares.error().message;
    spares_ = std::move(*spares);
  }

  // Serves one of the folders from a socket of its own.
  std::unique_ptr<Share> serve(const std::string& name, Mode mode) {
    auto grant = resolve_grant(directory_->path() / name, mode, {}, GrantRules{});
    EXPECT_TRUE(grant) << grant.error().message;
    ShareSpec spec;
    spec.ledger_folder = directory_->path() / ("ledger-" + name);
    spec.allow_weak = landlock_abi() == 0;
    auto share = Share::start(*grant, std::move(spec));
    EXPECT_TRUE(share) << share.error().message;
    EXPECT_TRUE((*share)->serve_guest(reader_socket(name)));
    return std::move(*share);
  }
  std::filesystem::path reader_socket(const std::string& name) const {
    return directory_->path() / ("reader-" + name);
  }
  std::unique_ptr<FuseGuest> guest(std::size_t index) {
    return std::make_unique<FuseGuest>(connect(spares_->socket_path(index)));
  }
  // The end of the process, as its host is told.
  std::string cause_of_end() {
    std::unique_lock lock(mutex_);
    std::string cause;
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(1), [&] {
      for (const auto& notice : notices_)
        if (notice.kind == ShareNotice::Kind::ended) cause = notice.cause;
      return !cause.empty();
    }));
    return cause;
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  std::unique_ptr<Spares> spares_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ShareNotice> notices_;
};

TEST_F(SparesTest, AReaderTakesThePlace) {
  auto first = guest(0), second = guest(1);
  EXPECT_EQ(spares_->free(), 0u);
  // What the guest asks before there is a folder waits for it.
  fuse_init_in in{};
  in.major = 7;
  in.minor = 36;
  auto waiting = first->submit(FuseGuest::request(FUSE_INIT, 0, bytes_of(in)), 4096);
  auto one = serve("one", Mode::ro), two = serve("two", Mode::rw);
  auto taken = spares_->take(0, reader_socket("one"));
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(spares_->free(), 1u);
  EXPECT_TRUE(first->wait(waiting).answered);
  auto file = first->node("file");
  ASSERT_NE(file, 0u);
  EXPECT_EQ(first->read(first->handle(file, O_RDONLY), 0, 100).payload, "one");
  EXPECT_EQ(first->create(FUSE_ROOT_ID, "new", O_RDWR).error, EROFS);

  ASSERT_TRUE(spares_->take(1, reader_socket("two")));
  ASSERT_TRUE(second->init().answered);
  EXPECT_EQ(second->create(FUSE_ROOT_ID, "new", O_RDWR).error, 0);
  EXPECT_TRUE(std::filesystem::exists(directory_->path() / "two/new"));
  EXPECT_EQ(first->node("new"), 0u);
}

TEST_F(SparesTest, RingsThatStopAndGoOnAreFollowed) {
  auto driver = guest(0);
  // Before there is a folder, as a guest does that loads its driver twice.
  EXPECT_EQ(driver->front_end.stop_ring(1), 0u);
  driver->front_end.send_ring(1);
  auto share = serve("one", Mode::ro);
  ASSERT_TRUE(spares_->take(0, reader_socket("one")));
  ASSERT_TRUE(driver->init().answered);
  // And after: the reader's own answer comes through.
  EXPECT_EQ(driver->front_end.stop_ring(1), 1u);
  driver->front_end.send_ring(1, 1);
  EXPECT_NE(driver->node("file"), 0u);
}

TEST_F(SparesTest, OnlyWhatWasPromisedIsAttached) {
  auto driver = guest(0);
  auto share = serve("one", Mode::ro);
  EXPECT_EQ(spares_->take(1, reader_socket("one")).error().code, ErrorCode::unavailable)
      << "no guest has set that one up";
  EXPECT_FALSE(spares_->take(3, reader_socket("one")));
  EXPECT_EQ(spares_->take(0, directory_->path() / "nobody").error().code, ErrorCode::not_found);
}

TEST_F(SparesTest, AfterAFailureThePlaceIsHeldAsBefore) {
  auto driver = guest(0);
  // A device that goes away in the middle.
  auto path = directory_->path() / "short";
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  std::thread device([&] {
    UniqueFd connection(accept(listener.get(), nullptr, nullptr));
    char bytes[12];
    EXPECT_EQ(read(connection.get(), bytes, sizeof bytes), 12);
  });
  EXPECT_EQ(spares_->take(0, path).error().code, ErrorCode::unavailable);
  device.join();
  EXPECT_EQ(spares_->free(), 0u);
  auto share = serve("one", Mode::ro);
  ASSERT_TRUE(spares_->take(0, reader_socket("one")));
  EXPECT_EQ(spares_->take(0, reader_socket("one")).error().code, ErrorCode::failed_precondition);
  ASSERT_TRUE(driver->init().answered);
  EXPECT_NE(driver->node("file"), 0u);
}

TEST_F(SparesTest, TheEndOfAReaderIsTheEndOfItsDeviceOnly) {
  auto first = guest(0), second = guest(1);
  auto one = serve("one", Mode::ro), two = serve("two", Mode::ro);
  ASSERT_TRUE(spares_->take(0, reader_socket("one")));
  ASSERT_TRUE(spares_->take(1, reader_socket("two")));
  one.reset();
  EXPECT_TRUE(first->front_end.closed());
  ASSERT_TRUE(second->init().answered);
  EXPECT_NE(second->node("file"), 0u);
}

TEST_F(SparesTest, AMachineThatEndsEndsItAll) {
  { auto first = guest(0), second = guest(1), third = guest(2); }
  EXPECT_EQ(cause_of_end(), to_string(ExitStatus{}));
}

TEST_F(SparesTest, MalformedMessagesEndItWithTheCause) {
  auto driver = guest(0);
  driver->front_end.send_state(8, 77, 128);  // a ring that was not offered
  EXPECT_NE(cause_of_end().find("ring 77 of "), std::string::npos) << cause_of_end();
  EXPECT_TRUE(driver->front_end.closed());
}

// A hostile program under the exact seal.
TEST(SparesSealed, ReachesNoFileAndStartsNothing) {
  if (landlock_abi() == 0) GTEST_SKIP() << "this kernel has no Landlock: sealing cannot be tested here";
  struct {
    const char* what;
    std::function<void()> body;
  } attempts[] = {
#ifndef ANCHORHOLD_SANITIZED  // whose runtimes need to open, to map and to trace
      {"openat", [] { syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC); }},
      {"ptrace", [] { syscall(SYS_ptrace, 0, 0, 0, 0); }},
#endif
      {"socket", [] { syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }},
      {"connect", [] { syscall(SYS_connect, 4, nullptr, 0); }},
      {"execve", [] { syscall(SYS_execve, "/bin/true", nullptr, nullptr); }},
      {"unlinkat", [] { syscall(SYS_unlinkat, AT_FDCWD, "x", 0); }},
      {"ftruncate", [] { syscall(SYS_ftruncate, 4, 0); }},
      {"fork", [] { syscall(SYS_fork); }},
  };
  for (const auto& attempt : attempts) {
    pid_t pid = fork();
    if (pid == 0) {
      if (!anchorhold::seal(spares_policy({.count = 1}))) _exit(99);
      attempt.body();
      _exit(98);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        << attempt.what << ": wait status " << status;
  }
}

}  // namespace
}  // namespace anchorhold::mounts::testing
