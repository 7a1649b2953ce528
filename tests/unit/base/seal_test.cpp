#include "base/seal.h"

#include <fcntl.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold {
namespace {

// Runs the body in a child process and returns its raw wait status; sealing cannot be undone, so never in the
// test itself.
int in_child(const std::function<int()>& body) {
  pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

SealPolicy policy_for_tests() {
  SealPolicy policy;
  policy.syscalls = base_syscalls();
  return policy;
}

class Seal : public ::testing::Test {
 protected:
  void SetUp() override {
    if (landlock_abi() == 0) GTEST_SKIP() << "this kernel has no Landlock: sealing cannot be tested here";
  }
};

TEST_F(Seal, WhatIsNotAllowedEndsTheProcess) {
  int status = in_child([] {
    if (!seal(policy_for_tests())) return 1;
    socket(AF_INET, SOCK_STREAM, 0);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGSYS);
}

TEST_F(Seal, FilesOutsideTheGrantedFolderAreGone) {
  auto folder = *TemporaryDirectory::create();
  std::filesystem::create_directory(folder.path() / "in");
  std::ofstream(folder.path() / "in" / "file") << "x";
  std::ofstream(folder.path() / "out") << "x";
  int status = in_child([&] {
    UniqueFd granted(open((folder.path() / "in").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto policy = policy_for_tests();
    policy.kill_on_violation = false;
    policy.files = {{granted.get(), FileRight::Access::read}};
    allow(policy, {"openat"});
    if (!seal(policy)) return 1;
    if (openat(granted.get(), "file", O_RDONLY) < 0) return 2;
    if (openat(granted.get(), "file", O_WRONLY) >= 0 || errno != EACCES) return 3;
    if (openat(granted.get(), "new", O_WRONLY | O_CREAT, 0600) >= 0 || errno != EACCES) return 4;
    if (openat(granted.get(), "../out", O_RDONLY) >= 0 || errno != EACCES) return 5;
    if (openat(AT_FDCWD, "/etc/passwd", O_RDONLY) >= 0 || errno != EACCES) return 6;
    return 0;
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Seal, OtherDescriptorsAreClosedAndThreadsStillWork) {
  int status = in_child([] {
    UniqueFd kept(open("/dev/null", O_RDWR));
    UniqueFd other(open("/dev/null", O_RDWR));
    auto policy = policy_for_tests();
    policy.kept_descriptors = {kept.get()};
    if (!seal(policy)) return 1;
    if (fcntl(kept.get(), F_GETFD) < 0) return 2;
    if (fcntl(other.get(), F_GETFD) >= 0) return 3;
    int value = 0;
    std::thread([&value] { value = 1; }).join();
    return value == 1 ? 0 : 4;
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Seal, ThreadsTakeAndGiveBackMemory) {
  int status = in_child([] {
    if (!seal(policy_for_tests())) return 1;
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([] {
          std::vector<std::string> blocks;
          for (int block = 0; block < 400; ++block) blocks.emplace_back(50'000, 'b');
        });
      for (auto& thread : threads) thread.join();
    }
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(Seal, NoNewProcessAndNoExecutableMemory) {
  int forked = in_child([] {
    if (!seal(policy_for_tests())) return 1;
    return fork() < 0 ? 0 : 2;
  });
#ifndef ANCHORHOLD_SANITIZED  // the sanitizers themselves need these two calls
  EXPECT_TRUE(WIFSIGNALED(forked)) << forked;
  int executable = in_child([] {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!seal(policy_for_tests())) return 1;
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(executable)) << executable;
  int mapped = in_child([] {
    if (!seal(policy_for_tests())) return 1;
    mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(mapped)) << mapped;
#else
  (void)forked;
#endif
}

}  // namespace
}  // namespace anchorhold
