// A hostile program under the exact seal and descriptors of the process that reviews and undoes: what it can
// do when it only looks, what when it undoes, and everything it cannot.
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
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
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"
#include "mounts/programs.h"
#include "review/src/program.h"
#include "seal_fixture.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

enum class Job { review, undo };

class LedgerSeal : public SealedFolders {
 protected:
  // The wait status of the body, run sealed, with the descriptors at the program's numbers.
  int sealed(Job job, const std::function<int()>& body) {
    return status_of([&] {
      int root = open(path("grant").c_str(), O_PATH | O_DIRECTORY);
      int ledger = open(path("ledger").c_str(), O_PATH | O_DIRECTORY);
      int pipes[2];
      if (root < 0 || ledger < 0 || pipe(pipes) != 0) return 120;
      int high_root = fcntl(root, F_DUPFD, 50), high_ledger = fcntl(ledger, F_DUPFD, 50);
      int high_pipe = fcntl(pipes[1], F_DUPFD, 50);
      if (dup2(high_root, ledger_fd::root) < 0 || dup2(high_pipe, ledger_fd::output) < 0) return 121;
      if (!seal(ledger_seal(ledger_fd::root, high_ledger, job == Job::undo, false))) return 122;
      return body();
    });
  }
  void expect_exit(Job job, int expected, const char* what, const std::function<int()>& body) {
    expect_exit_status(sealed(job, body), expected, what);
  }
  // Refused by an error or by the end of the process; never done.
  void expect_refused(Job job, const char* what, const std::function<long()>& attempt) {
    int status = sealed(job, [&] { return attempt() < 0 ? errno : 0; });
    EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGSYS : WEXITSTATUS(status) != 0) << what;
    for (auto file : {"grant/file", "outside/file"}) {
      std::ifstream in(path(file));
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "content") << what << ": " << file;
      EXPECT_EQ(fs::status(path(file)).permissions() & fs::perms::others_write, fs::perms::none) << what;
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(path("outside")), {}), 1) << what;
  }
};

class LedgerSealOfEach : public LedgerSeal, public ::testing::WithParamInterface<Job> {};

int outcome(long result) {
  return result >= 0 ? 0 : errno;
}

TEST_P(LedgerSealOfEach, WhatItIsForCanBeDone) {
  expect_exit(GetParam(), 0, "read in the grant",
              [&] { return outcome(open(path("grant/file").c_str(), O_RDONLY)); });
  expect_exit(GetParam(), 0, "read in the ledger",
              [&] { return outcome(open(path("ledger/file").c_str(), O_RDWR)); });
  if (GetParam() == Job::review) return;
  expect_exit(Job::undo, 0, "write in the grant",
              [&] { return outcome(open(path("grant/file").c_str(), O_RDWR | O_TRUNC)); });
  for (mode_t kind : {S_IFIFO, S_IFSOCK})
    expect_exit(Job::undo, 0, "make a pipe or a socket in the grant", [&] {
      return outcome(mknodat(AT_FDCWD, path("grant/" + std::to_string(kind)).c_str(), kind | 0600, 0));
    });
  expect_exit(Job::undo, 0, "move from the ledger into the grant", [&] {
    return outcome(renameat2(AT_FDCWD, path("ledger/file").c_str(), AT_FDCWD, path("grant/back").c_str(),
                             RENAME_NOREPLACE));
  });
}

TEST_F(LedgerSeal, WhoLooksChangesNothing) {
  const std::string file = path("grant/file");
  struct {
    const char* what;
    std::function<long()> attempt;
  } attempts[] = {
      {"open to write", [&] { return open(file.c_str(), O_WRONLY); }},
      {"truncate by opening", [&] { return open(file.c_str(), O_RDWR | O_TRUNC); }},
      {"append", [&] { return open(file.c_str(), O_WRONLY | O_APPEND); }},
      {"create", [&] { return open(path("grant/new").c_str(), O_WRONLY | O_CREAT, 0600); }},
      {"unlink", [&] { return unlink(file.c_str()); }},
      {"rename", [&] { return rename(file.c_str(), path("grant/other").c_str()); }},
      {"rename into the ledger", [&] { return rename(file.c_str(), path("ledger/stolen").c_str()); }},
      {"mkdir", [&] { return mkdir(path("grant/folder").c_str(), 0700); }},
      {"symlink", [&] { return symlinkat("x", AT_FDCWD, path("grant/symlink").c_str()); }},
      {"second name",
       [&] { return linkat(AT_FDCWD, file.c_str(), AT_FDCWD, path("grant/second").c_str(), 0); }},
      {"pipe", [&] { return mkfifo(path("grant/pipe").c_str(), 0600); }},
      {"mode by path", [&] { return chmod(file.c_str(), 0777); }},
      {"mode by descriptor", [&] { return fchmod(open(file.c_str(), O_RDONLY), 0777); }},
      {"owner by descriptor", [&] { return fchown(open(file.c_str(), O_RDONLY), 65534, 65534); }},
      {"times", [&] { return utimensat(AT_FDCWD, file.c_str(), nullptr, 0); }},
      {"xattr", [&] { return setxattr(file.c_str(), "user.x", "y", 1, 0); }},
  };
  for (auto& attempt : attempts) expect_refused(Job::review, attempt.what, attempt.attempt);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("grant")), {}), 1);
}

TEST_P(LedgerSealOfEach, NothingOutsideIsReached) {
  const std::string file = path("outside/file");
  struct {
    const char* what;
    std::function<long()> attempt;
  } attempts[] = {
      {"read outside", [&] { return open(file.c_str(), O_RDONLY); }},
      {"read the system", [] { return open("/etc/passwd", O_RDONLY); }},
      {"list outside", [&] { return open(path("outside").c_str(), O_RDONLY | O_DIRECTORY); }},
      {"write outside", [&] { return open(file.c_str(), O_WRONLY); }},
      {"write by way of ..", [] { return openat(ledger_fd::root, "../outside/file", O_WRONLY); }},
      {"truncate outside", [&] { return open(file.c_str(), O_RDONLY | O_TRUNC); }},
      {"write by a magic link",
       [&] {
         int fd = open(file.c_str(), O_PATH);
         return open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_WRONLY);
       }},
      {"create outside", [&] { return open(path("outside/new").c_str(), O_WRONLY | O_CREAT, 0600); }},
      {"pipe outside", [&] { return mkfifo(path("outside/pipe").c_str(), 0600); }},
      {"unlink outside", [&] { return unlink(file.c_str()); }},
      {"rename out", [&] { return rename(path("grant/file").c_str(), path("outside/stolen").c_str()); }},
      {"rename in", [&] { return rename(file.c_str(), path("grant/stolen").c_str()); }},
      {"link in", [&] { return linkat(AT_FDCWD, file.c_str(), AT_FDCWD, path("grant/stolen").c_str(), 0); }},
      {"link out",
       [&] {
         return linkat(AT_FDCWD, path("grant/file").c_str(), AT_FDCWD, path("outside/stolen").c_str(), 0);
       }},
      {"another's memory", [] { return open("/proc/1/environ", O_RDONLY); }},
  };
  for (auto& attempt : attempts) expect_refused(GetParam(), attempt.what, attempt.attempt);
}

TEST_P(LedgerSealOfEach, WhatItNeverDoesEndsIt) {
#ifdef ANCHORHOLD_SANITIZED
  GTEST_SKIP() << "the sanitizers need some of these calls";
#endif
  struct {
    const char* what;
    std::function<void()> attempt;
  } attempts[] = {
      {"internet socket", [] { socket(AF_INET, SOCK_STREAM, 0); }},
      {"unix socket", [] { socket(AF_UNIX, SOCK_STREAM, 0); }},
      {"exec", [] { execl("/bin/true", "true", nullptr); }},
      {"fork", [] { syscall(SYS_fork); }},
      {"new process", [] { syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }},
      {"signal another process", [] { kill(getppid(), 0); }},
      {"ptrace", [] { ptrace(PTRACE_ATTACH, getppid(), 0, 0); }},
      {"mount", [] { mount("x", "/mnt", "tmpfs", 0, nullptr); }},
      {"new namespace", [] { unshare(CLONE_NEWUSER); }},
      {"truncate by path", [&] { (void)!truncate(path("outside/file").c_str(), 0); }},
      {"device node", [&] { mknod(path("grant/node").c_str(), S_IFCHR | 0600, 0); }},
      {"executable memory",
       [] { mprotect(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, PROT_EXEC); }},
      {"change of user", [] { (void)!setuid(65534); }},
      {"io_uring", [] { syscall(SYS_io_uring_setup, 8, nullptr); }},
      {"files by handle", [] { syscall(SYS_open_by_handle_at, ledger_fd::root, nullptr, 0); }},
      {"terminal injection", [] { syscall(SYS_ioctl, 0, 0x5412, "x"); }},
  };
  for (auto& attempt : attempts) {
    int status = sealed(GetParam(), [&] {
      attempt.attempt();
      return 0;
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << attempt.what << ": went on, exit " << WEXITSTATUS(status);
    EXPECT_EQ(WTERMSIG(status), SIGSYS) << attempt.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, LedgerSealOfEach, ::testing::Values(Job::review, Job::undo),
                         [](const auto& job) { return job.param == Job::undo ? "Undo" : "Review"; });

}  // namespace
}  // namespace anchorhold::mounts
