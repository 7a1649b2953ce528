// Starting our helper processes and waiting for them. A child gets exactly the descriptors that are named.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold {

struct PassedDescriptor {
  int fd;         // ours; stays open here
  int target_fd;  // its number in the child
};

struct SpawnSpec {
  std::vector<std::string> argv;                        // argv[0] is an absolute path
  std::optional<std::vector<std::string>> environment;  // "K=V"; none: ours
  std::vector<PassedDescriptor> descriptors;  // 0, 1, 2 not named become /dev/null; all others are closed
  std::filesystem::path working_directory;    // empty: ours
  bool new_process_group = true;
  bool die_with_parent = true;  // SIGKILL when the thread that spawned it ends (prctl(2) PR_SET_PDEATHSIG)
};

struct ExitStatus {
  int code = 0;  // valid when signal == 0
  int signal = 0;
  bool ok() const { return signal == 0 && code == 0; }
};
std::string to_string(ExitStatus status);

// Owned by one thread. The destructor kills the process group and reaps it.
class Child {
 public:
  static Result<Child> spawn(const SpawnSpec& spec);
  Child(Child&&) noexcept;
  Child& operator=(Child&&) noexcept;
  ~Child();

  pid_t pid() const { return pid_; }
  // Readable (poll) when the process has ended.
  int pidfd() const { return pidfd_.get(); }
  // Nothing when it still runs after the time; each status is reported for ever.
  std::optional<ExitStatus> wait(std::chrono::milliseconds limit);
  ExitStatus wait();
  void kill(int signal);
  // Lets the process live on; the caller no longer owns it.
  void release();

 private:
  Child(pid_t pid, UniqueFd pidfd, bool group) : pid_(pid), pidfd_(std::move(pidfd)), group_(group) {}
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  bool group_ = false;
  std::optional<ExitStatus> status_;
};

}  // namespace anchorhold
