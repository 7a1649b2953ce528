// Folders for a hostile program under the seal of a process that writes in a grant, and the process it is.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/seal.h"

namespace anchorhold::mounts {

class SealedFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    if (landlock_abi() == 0) GTEST_SKIP() << "this kernel has no Landlock: sealing cannot be tested here";
    auto made = TemporaryDirectory::create("anchorhold-seal-test");
    ASSERT_TRUE(made);
    directory_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    for (auto folder : {"grant", "ledger", "outside"})
      ASSERT_TRUE(std::filesystem::create_directory(path(folder)));
    for (auto file : {"grant/file", "ledger/file", "outside/file"}) std::ofstream(path(file)) << "content";
  }
  std::string path(const std::string& name) const { return directory_->path() / name; }

  // The wait status of a process that does this and ends with what it returns.
  static int status_of(const std::function<int()>& process) {
    pid_t pid = fork();
    if (pid == 0) _exit(process());
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }
  static void expect_exit_status(int status, int expected, const char* what) {
    ASSERT_TRUE(WIFEXITED(status)) << what << ": signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), expected) << what;
  }

  std::unique_ptr<TemporaryDirectory> directory_;
};

}  // namespace anchorhold::mounts
