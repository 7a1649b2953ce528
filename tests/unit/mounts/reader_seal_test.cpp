// A hostile program under the reader's exact seal, with the reader's descriptors: what it still cannot do.
#include "reader/reader_seal.h"

#include <fcntl.h>
#include <functional>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper_fixture.h"

namespace anchorhold::mounts {
namespace {

using testing::read_text;
using testing::write_text;

struct Held {
  int root;
  int own_descriptors;
  int readable;  // "file", opened as the reader opens
  int writable;  // "handed-out", as the keeper hands out; only where the mode has a keeper
};

class ReaderSealed : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (landlock_abi() == 0) GTEST_SKIP() << "this kernel has no Landlock: sealing cannot be tested here";
    auto made = TemporaryDirectory::create("anchorhold-reader-seal");
    ASSERT_TRUE(made);
    directory_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    grant_ = directory_->path() / "grant";
    std::filesystem::create_directory(grant_);
    std::filesystem::create_directory(grant_ / "folder");
    write_text(grant_ / "file", "as it was");
    write_text(grant_ / "handed-out", "as it was");
    write_text(directory_->path() / "secret", "secret");
    std::filesystem::create_symlink("../secret", grant_ / "link-out");
  }

  // Runs the body in a process sealed as the reader is; returns its raw wait status.
  int sealed(const std::function<int(const Held&)>& body) {
    pid_t pid = fork();
    if (pid == 0) {
      Held held{};
      held.root = open(grant_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
      held.own_descriptors = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
      held.readable = openat(held.root, "file", O_RDONLY | O_CLOEXEC);
      held.writable = GetParam() ? openat(held.root, "handed-out", O_RDWR | O_CLOEXEC) : -1;
      ReaderSeal seal;
      seal.root = held.root;
      seal.own_descriptors = held.own_descriptors;
      seal.sockets = {held.readable, held.writable};
      seal.writes = GetParam();
      if (!drop_capabilities() || !anchorhold::seal(reader_policy(seal))) _exit(99);
      _exit(body(held));
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }

  void expect_killed(const char* what, const std::function<void(const Held&)>& body) {
    int status = sealed([&](const Held& held) {
      body(held);
      return 98;  // it came back
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << what << ": wait status " << status;
  }

  void TearDown() override {
    if (grant_.empty()) return;
    EXPECT_EQ(read_text(grant_ / "file"), "as it was");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(grant_), {}), 4)
        << "nothing was made, nothing went";
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  std::filesystem::path grant_;
};

TEST_P(ReaderSealed, DoesItsWork) {
  int status = sealed([](const Held& held) {
    char bytes[16];
    int looked = openat(held.root, "file", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (looked < 0) return 1;
    std::string number = std::to_string(looked);
    int opened = openat(held.own_descriptors, number.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0) return 2;
    if (pread(opened, bytes, sizeof bytes, 0) != 9) return 3;
    int folder = openat(held.root, "folder", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (openat(folder, ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) < 0) return 4;
    if (held.writable >= 0 && pwrite(held.writable, "x", 1, 0) != 1) return 5;
    return 0;
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_P(ReaderSealed, OpensNothingForChanging) {
#ifdef ANCHORHOLD_SANITIZED
  GTEST_SKIP() << "the sanitizers themselves need openat, in any form";
#endif
  for (int flags :
       {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_RDONLY | O_CREAT, O_RDONLY | O_APPEND, O_WRONLY | O_TRUNC,
        O_PATH | O_TRUNC, O_RDWR | O_TMPFILE, O_ACCMODE, O_RDONLY | O_DIRECT, O_RDONLY | O_NONBLOCK}) {
    for (int extra : {0, O_CLOEXEC, O_CLOEXEC | O_NOFOLLOW}) {
      auto what = "openat with flags " + std::to_string(flags | extra);
      expect_killed(what.c_str(),
                    [&](const Held& held) { syscall(SYS_openat, held.root, "file", flags | extra, 0600); });
    }
  }
  expect_killed("openat2", [](const Held& held) {
    open_how how{};
    syscall(SYS_openat2, held.root, "file", &how, sizeof how);
  });
  expect_killed("open", [&](const Held&) { syscall(SYS_open, (grant_ / "file").c_str(), O_RDONLY); });
  expect_killed("creat", [&](const Held&) { syscall(SYS_creat, (grant_ / "new").c_str(), 0600); });
  expect_killed("an openat with bits above the flags", [](const Held& held) {
    syscall(SYS_openat, held.root, "file", (1ull << 40) | O_CLOEXEC | O_TRUNC, 0);
  });
}

TEST_P(ReaderSealed, ChangesNothingByNameOrDescriptor) {
  const auto file = (grant_ / "file").string(), fresh = (grant_ / "new").string();
  const timespec times[2] = {};
  struct {
    const char* what;
    std::function<void(const Held&)> body;
  } attempts[] = {
      {"truncate", [&](const Held&) { syscall(SYS_truncate, file.c_str(), 0); }},
      {"ftruncate", [](const Held& h) { syscall(SYS_ftruncate, h.readable, 0); }},
      {"ftruncate of what was handed out", [](const Held& h) { syscall(SYS_ftruncate, h.writable, 0); }},
      {"fallocate", [](const Held& h) { syscall(SYS_fallocate, h.writable, 3, 0, 4); }},
      {"unlinkat", [](const Held& h) { syscall(SYS_unlinkat, h.root, "file", 0); }},
      {"renameat2", [](const Held& h) { syscall(SYS_renameat2, h.root, "file", h.root, "new", 0); }},
      {"linkat", [](const Held& h) { syscall(SYS_linkat, h.root, "file", h.root, "new", 0); }},
      {"symlinkat", [](const Held& h) { syscall(SYS_symlinkat, "x", h.root, "new"); }},
      {"mkdirat", [](const Held& h) { syscall(SYS_mkdirat, h.root, "new", 0700); }},
      {"mknodat", [](const Held& h) { syscall(SYS_mknodat, h.root, "new", 0100600, 0); }},
      {"fchmod", [](const Held& h) { syscall(SYS_fchmod, h.readable, 0777); }},
      {"fchmodat", [](const Held& h) { syscall(SYS_fchmodat, h.root, "file", 0777); }},
      {"fchown", [](const Held& h) { syscall(SYS_fchown, h.readable, 1, 1); }},
      {"utimensat", [&](const Held& h) { syscall(SYS_utimensat, h.readable, nullptr, times, 0); }},
      {"fsetxattr", [](const Held& h) { syscall(SYS_fsetxattr, h.readable, "user.x", "x", 1, 0); }},
      {"setxattr", [&](const Held&) { syscall(SYS_setxattr, file.c_str(), "user.x", "x", 1, 0); }},
      {"getxattr by path", [&](const Held&) { syscall(SYS_getxattr, file.c_str(), "user.x", nullptr, 0); }},
      {"ioctl", [](const Held& h) { syscall(SYS_ioctl, h.readable, 0x40086602, 0); }},
      {"splice", [](const Held& h) { syscall(SYS_splice, h.readable, nullptr, h.writable, nullptr, 4, 0); }},
      {"sendfile", [](const Held& h) { syscall(SYS_sendfile, h.writable, h.readable, nullptr, 4); }},
      {"io_uring_setup", [](const Held&) { syscall(SYS_io_uring_setup, 1, nullptr); }},
      {"open_by_handle_at", [](const Held& h) { syscall(SYS_open_by_handle_at, h.root, nullptr, 0); }},
      {"chdir", [](const Held&) { syscall(SYS_chdir, "/"); }},
  };
  for (auto& attempt : attempts) expect_killed(attempt.what, attempt.body);
  if (GetParam()) return;
  expect_killed("pwrite64", [](const Held& h) { syscall(SYS_pwrite64, h.readable, "x", 1, 0); });
  expect_killed("pwritev2", [](const Held& h) { syscall(SYS_pwritev2, h.readable, nullptr, 0, 0, 0, 0); });
  expect_killed("copy_file_range", [](const Held& h) {
    syscall(SYS_copy_file_range, h.readable, nullptr, h.readable, nullptr, 1, 0);
  });
}

TEST_P(ReaderSealed, StartsTalksToAndTouchesNobody) {
  static const char* const argv[] = {"/bin/true", nullptr};
  struct {
    const char* what;
    std::function<void(const Held&)> body;
  } attempts[] = {
      {"execve", [](const Held&) { syscall(SYS_execve, argv[0], argv, nullptr); }},
      {"execveat",
       [](const Held& h) { syscall(SYS_execveat, h.readable, "", argv, nullptr, AT_EMPTY_PATH); }},
      {"fork", [](const Held&) { syscall(SYS_fork); }},
      {"clone", [](const Held&) { syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr); }},
      {"socket", [](const Held&) { syscall(SYS_socket, AF_INET, SOCK_STREAM, 0); }},
      {"unix socket", [](const Held&) { syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }},
      {"connect", [](const Held& h) { syscall(SYS_connect, h.readable, nullptr, 0); }},
      {"ptrace", [](const Held&) { syscall(SYS_ptrace, 16, 1, 0, 0); }},
      {"process_vm_readv", [](const Held&) { syscall(SYS_process_vm_readv, 1, nullptr, 0, nullptr, 0, 0); }},
      {"kill", [](const Held&) { syscall(SYS_kill, getppid(), 0); }},
      {"pidfd_open", [](const Held&) { syscall(SYS_pidfd_open, 1, 0); }},
      {"unshare", [](const Held&) { syscall(SYS_unshare, CLONE_NEWUSER); }},
      {"mount", [](const Held&) { syscall(SYS_mount, "x", "/", "tmpfs", 0, nullptr); }},
      {"chroot", [](const Held&) { syscall(SYS_chroot, "/"); }},
      {"bpf", [](const Held&) { syscall(SYS_bpf, 0, nullptr, 0); }},
      {"memfd_create", [](const Held&) { syscall(SYS_memfd_create, "x", 0); }},
      {"prctl", [](const Held&) { syscall(SYS_prctl, 4, 1, 0, 0, 0); }},
      {"seccomp", [](const Held&) { syscall(SYS_seccomp, 0, 0, nullptr); }},
      {"setuid", [](const Held&) { syscall(SYS_setuid, 0); }},
      {"capset", [](const Held&) { syscall(SYS_capset, nullptr, nullptr); }},
      {"keyctl", [](const Held&) { syscall(SYS_keyctl, 0, 0, 0, 0, 0); }},
      {"an executable page",
       [](const Held&) {
         void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC);
       }},
  };
#ifdef ANCHORHOLD_SANITIZED
  const std::set<std::string> needed_by_sanitizers{"clone", "ptrace", "prctl", "an executable page"};
#else
  const std::set<std::string> needed_by_sanitizers;
#endif
  for (auto& attempt : attempts)
    if (!needed_by_sanitizers.count(attempt.what)) expect_killed(attempt.what, attempt.body);
}

TEST_P(ReaderSealed, ReadsNothingOutsideTheFolder) {
  const auto secret = (directory_->path() / "secret").string();
  int status = sealed([&](const Held& held) {
    constexpr int reading = O_RDONLY | O_CLOEXEC;
    if (openat(AT_FDCWD, secret.c_str(), reading) >= 0 || errno != EACCES) return 1;
    if (openat(held.root, "../secret", reading) >= 0 || errno != EACCES) return 2;
    if (openat(held.root, "link-out", reading) >= 0 || errno != EACCES) return 3;
    if (openat(AT_FDCWD, "/etc/passwd", reading) >= 0 || errno != EACCES) return 4;
    if (openat(AT_FDCWD, "/proc/self/mem", reading) >= 0 || errno != EACCES) return 5;
    if (openat(held.own_descriptors, "../environ", reading) >= 0 || errno != EACCES) return 6;
    if (openat(held.root, "..", reading | O_DIRECTORY) >= 0 || errno != EACCES) return 7;
    // A path descriptor of something outside opens nothing either.
    int looked = openat(AT_FDCWD, secret.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    std::string number = std::to_string(looked);
    if (looked < 0 || openat(held.own_descriptors, number.c_str(), reading) >= 0 || errno != EACCES) return 8;
    return 0;
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_P(ReaderSealed, WhatWasOpenedForReadingStaysThat) {
  int status = sealed([](const Held& held) {
    if (write(held.readable, "x", 1) >= 0) return 1;
    fcntl(held.readable, F_SETFL, O_RDWR | O_APPEND);
    if (write(held.readable, "x", 1) >= 0) return 2;
    if (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, held.readable, 0) != MAP_FAILED) return 3;
    void* page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, held.readable, 0);
    if (page == MAP_FAILED || mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0) return 4;
    return 0;
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, ReaderSealed, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "WithAKeeper" : "ReadOnly"; });

}  // namespace
}  // namespace anchorhold::mounts
