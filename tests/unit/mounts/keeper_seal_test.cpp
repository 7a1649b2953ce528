// A hostile program under the keeper's exact seal and descriptors: what it still can, and everything it
// cannot.
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"
#include "mounts/programs.h"
#include "program.h"
#include "seal_fixture.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

class KeeperSeal : public SealedFolders {
 protected:
  // The wait status of the body, run sealed, with the descriptors at the keeper's numbers.
  int sealed(const std::function<int()>& body) {
    return status_of([&] {
      int root = open(path("grant").c_str(), O_PATH | O_DIRECTORY);
      int ledger = open(path("ledger").c_str(), O_PATH | O_DIRECTORY);
      int sockets[2];
      if (root < 0 || ledger < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) return 120;
      int high_root = fcntl(root, F_DUPFD, 50), high_ledger = fcntl(ledger, F_DUPFD, 50);
      int high_socket = fcntl(sockets[0], F_DUPFD, 50);
      if (dup2(high_root, keeper_fd::root) < 0 || dup2(high_socket, keeper_fd::reports) < 0 ||
          dup2(high_socket, keeper_fd::first_client) < 0)
        return 121;
      if (!seal(keeper_seal(keeper_fd::root, high_ledger, 1, false))) return 122;
      return body();
    });
  }
  void expect_exit(int expected, const char* what, const std::function<int()>& body) {
    expect_exit_status(sealed(body), expected, what);
  }
  void expect_killed(const char* what, const std::function<int()>& body) {
    int status = sealed(body);
    ASSERT_TRUE(WIFSIGNALED(status)) << what << ": went on, exit " << WEXITSTATUS(status);
    EXPECT_EQ(WTERMSIG(status), SIGSYS) << what;
  }
};

// The errno of a call as an exit status; 0: it worked.
int outcome(long result) {
  return result >= 0 ? 0 : errno;
}

TEST_F(KeeperSeal, ItsOwnTwoFoldersAreOpenToIt) {
  expect_exit(0, "write in the grant",
              [&] { return outcome(open(path("grant/file").c_str(), O_RDWR | O_TRUNC)); });
  expect_exit(0, "create in the ledger",
              [&] { return outcome(open(path("ledger/new").c_str(), O_WRONLY | O_CREAT, 0600)); });
  expect_exit(0, "move from one to the other",
              [&] { return outcome(rename(path("grant/file").c_str(), path("ledger/moved").c_str())); });
}

TEST_F(KeeperSeal, NothingElseCanBeReadOrChanged) {
  struct {
    const char* what;
    std::function<long()> attempt;
    int expected;
  } attempts[] = {
      {"read outside", [&] { return open(path("outside/file").c_str(), O_RDONLY); }, EACCES},
      {"read the system", [] { return open("/etc/passwd", O_RDONLY); }, EACCES},
      {"read another's memory", [] { return open("/proc/1/environ", O_RDONLY); }, EACCES},
      {"write outside", [&] { return open(path("outside/file").c_str(), O_WRONLY); }, EACCES},
      {"write by way of ..", [] { return openat(keeper_fd::root, "../outside/file", O_WRONLY); }, EACCES},
      {"truncate outside", [&] { return open(path("outside/file").c_str(), O_WRONLY | O_TRUNC); }, EACCES},
      {"truncate outside, read-only", [&] { return open(path("outside/file").c_str(), O_RDONLY | O_TRUNC); },
       EACCES},
      {"write by a magic link",
       [&] {
         int fd = open(path("outside/file").c_str(), O_PATH);
         return open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_WRONLY);
       },
       EACCES},
      {"list outside", [&] { return open(path("outside").c_str(), O_RDONLY | O_DIRECTORY); }, EACCES},
      {"create outside", [&] { return open(path("outside/new").c_str(), O_WRONLY | O_CREAT, 0600); }, EACCES},
      {"mkdir outside", [&] { return mkdir(path("outside/new").c_str(), 0700); }, EACCES},
      {"symlink outside", [&] { return symlinkat("x", AT_FDCWD, path("outside/new").c_str()); }, EACCES},
      {"unlink outside", [&] { return unlink(path("outside/file").c_str()); }, EACCES},
      {"rename out", [&] { return rename(path("grant/file").c_str(), path("outside/stolen").c_str()); },
       EACCES},
      {"rename in", [&] { return rename(path("outside/file").c_str(), path("grant/stolen").c_str()); },
       EACCES},
      {"link in",
       [&] {
         return linkat(AT_FDCWD, path("outside/file").c_str(), AT_FDCWD, path("grant/stolen").c_str(), 0);
       },
       EXDEV},
      {"link out",
       [&] {
         return linkat(AT_FDCWD, path("grant/file").c_str(), AT_FDCWD, path("outside/stolen").c_str(), 0);
       },
       EACCES},
  };
  for (auto& attempt : attempts) {
    expect_exit(attempt.expected, attempt.what, [&] { return outcome(attempt.attempt()); });
    std::ifstream in(path("outside/file"));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "content") << attempt.what;
    EXPECT_EQ(std::distance(fs::directory_iterator(path("outside")), {}), 1) << attempt.what;
    EXPECT_TRUE(fs::exists(path("grant/file"))) << attempt.what;
  }
}

TEST_F(KeeperSeal, WhatAKeeperNeverDoesEndsIt) {
  struct {
    const char* what;
    std::function<void()> attempt;
  } attempts[] = {
      {"internet socket", [] { socket(AF_INET, SOCK_STREAM, 0); }},
      {"unix socket", [] { socket(AF_UNIX, SOCK_STREAM, 0); }},
      {"connect", [] { connect(keeper_fd::first_client, nullptr, 0); }},
      {"accept", [] { accept4(keeper_fd::first_client, nullptr, nullptr, 0); }},
      {"exec", [] { execl("/bin/true", "true", nullptr); }},
      {"fork", [] { syscall(SYS_fork); }},
      {"new process", [] { syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }},
      {"signal another process", [] { kill(getppid(), 0); }},
      {"ptrace", [] { ptrace(PTRACE_ATTACH, getppid(), 0, 0); }},
      {"another's memory", [] { syscall(SYS_process_vm_readv, getppid(), nullptr, 0, nullptr, 0, 0); }},
      {"mount", [] { mount("x", "/mnt", "tmpfs", 0, nullptr); }},
      {"new namespace", [] { unshare(CLONE_NEWUSER); }},
      {"chroot", [] { (void)!chroot("/"); }},
      {"chown by path", [&] { (void)!chown(path("grant/file").c_str(), 0, 0); }},
      {"truncate by path", [&] { (void)!truncate(path("outside/file").c_str(), 0); }},
      {"device node", [&] { mknod(path("grant/node").c_str(), S_IFCHR | 0600, 0); }},
      {"FIFO", [&] { mkfifo(path("grant/fifo").c_str(), 0600); }},
      {"executable memory",
       [] { mprotect(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, PROT_EXEC); }},
      {"change of user", [] { (void)!setuid(65534); }},
      {"kernel keys", [] { syscall(SYS_add_key, "user", "k", "v", 1, -3); }},
      {"io_uring", [] { syscall(SYS_io_uring_setup, 8, nullptr); }},
      {"bpf", [] { syscall(SYS_bpf, 0, nullptr, 0); }},
      {"terminal injection", [] { syscall(SYS_ioctl, 0, 0x5412, "x"); }},
      {"files by handle", [] { syscall(SYS_open_by_handle_at, keeper_fd::root, nullptr, 0); }},
      {"prctl", [] { prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); }},
  };
#ifdef ANCHORHOLD_SANITIZED
  GTEST_SKIP() << "the sanitizers need some of these calls";
#endif
  for (auto& attempt : attempts)
    expect_killed(attempt.what, [&] {
      attempt.attempt();
      return 0;
    });
}

TEST_F(KeeperSeal, OtherDescriptorsAreClosed) {
  UniqueFd secret(open(path("outside/file").c_str(), O_RDONLY));
  int inherited = fcntl(secret.get(), F_DUPFD, 100);
  expect_exit(EBADF, "an inherited descriptor", [&] { return outcome(fcntl(inherited, F_GETFD)); });
  close(inherited);
}

}  // namespace
}  // namespace anchorhold::mounts
