// Control groups (cgroup v2, the kernel's admin-guide/cgroup-v2): one group holds everything a command
// started, so that a kill misses nothing and a limit hits nobody else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::guest {

struct GroupLimits {
  std::uint64_t memory_bytes = 0;  // 0: none
  std::uint32_t processes = 0;     // 0: none
};

struct GroupUsage {
  std::uint64_t cpu_time_ns = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t peak_memory_bytes = 0;
  std::uint32_t processes = 0;
};

// The group of one command. The destructor removes it if nothing lives in it any more.
class ExecGroup {
 public:
  ~ExecGroup();
  ExecGroup(const ExecGroup&) = delete;
  ExecGroup& operator=(const ExecGroup&) = delete;

  int directory_fd() const { return directory_.get(); }
  // Gives EPOLLPRI when the group becomes empty or gets its first process; -1 when there is none.
  int events_fd() const { return events_.get(); }
  bool populated() const;
  void kill() const;
  void signal(int number) const;
  // How many processes the memory limit, of this group or of one around it, has killed here.
  std::uint64_t out_of_memory_kills() const;
  // Gives EPOLLPRI when a fork was refused; -1 when processes are not limited.
  int process_limit_fd() const { return process_events_.get(); }
  std::uint64_t refused_forks() const;
  GroupUsage usage() const;

 private:
  friend class GroupTree;
  explicit ExecGroup(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  UniqueFd directory_;
  UniqueFd events_;
  UniqueFd process_events_;
};

// Where the groups of commands are made.
class GroupTree {
 public:
  // For PID 1: takes the whole hierarchy mounted at `mount`, moves the agent into a group with a reserve of
  // memory and the larger share of processor time, and bounds what all commands together may use.
  static Result<std::unique_ptr<GroupTree>> own(const std::filesystem::path& mount,
                                                std::uint64_t memory_total_bytes);
  // For an agent that is an ordinary process: a group below its own, where the system lets it make one.
  static Result<std::unique_ptr<GroupTree>> below_own_group();
  ~GroupTree();

  bool memory_limits() const { return memory_limits_; }
  bool process_limits() const { return process_limits_; }
  // Safe from any thread.
  Result<std::unique_ptr<ExecGroup>> make(const std::string& name, const GroupLimits& limits) const;

 private:
  explicit GroupTree(std::filesystem::path execs) : execs_(std::move(execs)) {}
  std::filesystem::path execs_;
  bool temporary_ = false;
  bool memory_limits_ = false;
  bool process_limits_ = false;
};

}  // namespace anchorhold::guest
