#include "cgroup.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold::guest {
namespace {

constexpr std::size_t most_text = 1 << 20;

Status write_text(const std::filesystem::path& path, std::string_view text) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return fail_errno(errno, path.string());
  if (write(file.get(), text.data(), text.size()) < 0) return fail_errno(errno, path.string());
  return {};
}

// Files of a control group have no size, so they are read until their end.
std::string read_text(int directory, const char* name) {
  UniqueFd file(openat(directory, name, O_RDONLY | O_CLOEXEC));
  std::string text;
  char buffer[4096];
  while (file && text.size() < most_text) {
    ssize_t got = read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

// A file that is watched is read through the watched descriptor: that is what ends the kernel's notice of a
// change.
std::string read_watched(int fd) {
  std::string text(4096, '\0');
  ssize_t got = pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The value of a line "key value"; 0 when there is none.
std::uint64_t keyed(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ')
      return number(line.substr(key.size() + 1));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return 0;
}

bool has_word(std::string_view text, std::string_view word) {
  return (" " + std::string(text) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

std::string controllers(const std::filesystem::path& group) {
  UniqueFd directory(open(group.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::string text = read_text(directory.get(), "cgroup.controllers");
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Status make_group(const std::filesystem::path& path) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno(errno, path.string());
  return {};
}

// Groups left by agents that were killed: empty ones can be removed, others refuse.
void remove_stale_groups(const std::filesystem::path& parent) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    std::string name = entry.path().filename();
    constexpr std::string_view ours = "anchorhold-guest.";
    if (!name.starts_with(ours)) continue;
    auto pid = static_cast<pid_t>(number(std::string_view(name).substr(ours.size())));
    if (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH) continue;
    for (const auto& inner : std::filesystem::directory_iterator(entry.path(), ignored))
      if (inner.is_directory(ignored)) rmdir(inner.path().c_str());
    rmdir(entry.path().c_str());
  }
}

}  // namespace

ExecGroup::~ExecGroup() {
  events_.reset();
  process_events_.reset();
  directory_.reset();
  // What was killed just now may need a moment to leave.
  for (int attempt = 0; rmdir(path_.c_str()) != 0 && errno == EBUSY && attempt < 5; ++attempt) usleep(2000);
}

bool ExecGroup::populated() const {
  return keyed(read_watched(events_.get()), "populated") != 0;
}

void ExecGroup::kill() const {
  (void)write_text(path_ / "cgroup.kill", "1");
}

void ExecGroup::signal(int number_of_signal) const {
  std::string text = read_text(directory_.get(), "cgroup.procs");
  std::string_view rest = text;
  while (!rest.empty()) {
    auto end = rest.find('\n');
    if (auto pid = static_cast<pid_t>(number(rest.substr(0, end))); pid > 0) ::kill(pid, number_of_signal);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
}

std::uint64_t ExecGroup::out_of_memory_kills() const {
  return keyed(read_text(directory_.get(), "memory.events"), "oom_kill");
}

std::uint64_t ExecGroup::refused_forks() const {
  return keyed(read_watched(process_events_.get()), "max");
}

GroupUsage ExecGroup::usage() const {
  GroupUsage usage;
  usage.cpu_time_ns = keyed(read_text(directory_.get(), "cpu.stat"), "usage_usec") * 1000;
  usage.memory_bytes = number(read_text(directory_.get(), "memory.current"));
  usage.peak_memory_bytes = number(read_text(directory_.get(), "memory.peak"));
  std::string current = read_text(directory_.get(), "pids.current");
  if (current.empty()) {
    current = read_text(directory_.get(), "cgroup.procs");
    usage.processes = static_cast<std::uint32_t>(std::count(current.begin(), current.end(), '\n'));
  } else {
    usage.processes = static_cast<std::uint32_t>(number(current));
  }
  return usage;
}

Result<std::unique_ptr<GroupTree>> GroupTree::own(const std::filesystem::path& mount,
                                                  std::uint64_t memory_total_bytes) {
  std::string available = controllers(mount);
  std::unique_ptr<GroupTree> tree(new GroupTree(mount / "exec"));
  std::filesystem::path agent = mount / "agent";
  ANCHORHOLD_CHECK(make_group(agent));
  ANCHORHOLD_CHECK(make_group(tree->execs_));
  ANCHORHOLD_CHECK(write_text(agent / "cgroup.procs", "0"));
  for (const char* name : {"memory", "pids", "cpu"}) {
    if (!has_word(available, name)) continue;
    ANCHORHOLD_CHECK(write_text(mount / "cgroup.subtree_control", fmt::format("+{}", name)));
    ANCHORHOLD_CHECK(write_text(tree->execs_ / "cgroup.subtree_control", fmt::format("+{}", name)));
  }
  tree->memory_limits_ = has_word(available, "memory");
  tree->process_limits_ = has_word(available, "pids");
  if (tree->memory_limits_) {
    // What commands cannot have: room for the agent and the kernel, so that memory runs out for a command
    // only.
    std::uint64_t reserve = std::max<std::uint64_t>(32u << 20, memory_total_bytes / 16);
    reserve = std::min(reserve, memory_total_bytes / 4);
    ANCHORHOLD_CHECK(
        write_text(agent / "memory.min", std::to_string(std::min<std::uint64_t>(reserve, 32u << 20))));
    ANCHORHOLD_CHECK(write_text(tree->execs_ / "memory.max", std::to_string(memory_total_bytes - reserve)));
  }
  if (has_word(available, "cpu")) ANCHORHOLD_CHECK(write_text(agent / "cpu.weight", "10000"));
  return tree;
}

Result<std::unique_ptr<GroupTree>> GroupTree::below_own_group() {
  // proc(5): the line of the unified hierarchy starts with "0::"; mountinfo has " - cgroup2 " behind the
  // mount point.
  UniqueFd self(open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::string groups = read_text(self.get(), "cgroup");
  std::string mounts = read_text(self.get(), "mountinfo");
  std::string own;
  std::string mount_point;
  for (std::string_view rest = groups; !rest.empty();) {
    auto end = rest.find('\n');
    if (rest.substr(0, end).starts_with("0::")) own = rest.substr(3, end == rest.npos ? end : end - 3);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
  for (std::string_view rest = mounts; !rest.empty();) {
    auto end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    if (line.find(" - cgroup2 ") == line.npos) continue;
    for (int field = 0; field < 4; ++field) line.remove_prefix(std::min(line.find(' '), line.size() - 1) + 1);
    mount_point = line.substr(0, line.find(' '));
  }
  if (own.empty() || mount_point.empty()) return fail(ErrorCode::unsupported, "this system has no cgroup v2");
  std::filesystem::path parent = mount_point + own;
  remove_stale_groups(parent);
  std::unique_ptr<GroupTree> tree(new GroupTree(parent / fmt::format("anchorhold-guest.{}", getpid())));
  tree->temporary_ = true;
  if (mkdir(tree->execs_.c_str(), 0755) != 0) {
    tree->temporary_ = false;
    return fail_errno(errno, tree->execs_.string());
  }
  // A group that may be made but not entered would break every start of a command.
  UniqueFd procs(open((tree->execs_ / "cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  UniqueFd parent_procs(open((parent / "cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  UniqueFd killer(open((tree->execs_ / "cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  if (!procs || !parent_procs || !killer) return fail_errno(errno, tree->execs_.string());
  std::string available = controllers(tree->execs_);
  for (const char* name : {"memory", "pids"})
    if (has_word(available, name))
      (void)write_text(tree->execs_ / "cgroup.subtree_control", fmt::format("+{}", name));
  tree->memory_limits_ = has_word(available, "memory");
  tree->process_limits_ = has_word(available, "pids");
  return tree;
}

GroupTree::~GroupTree() {
  if (temporary_) rmdir(execs_.c_str());
}

Result<std::unique_ptr<ExecGroup>> GroupTree::make(const std::string& name, const GroupLimits& limits) const {
  std::filesystem::path path = execs_ / name;
  if (mkdir(path.c_str(), 0755) != 0) return fail_errno(errno, path.string());
  std::unique_ptr<ExecGroup> group(new ExecGroup(path));
  group->directory_.reset(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!group->directory_) return fail_errno(errno, path.string());
  group->events_.reset(openat(group->directory_.get(), "cgroup.events", O_RDONLY | O_CLOEXEC));
  if (!group->events_) return fail_errno(errno, path.string());
  if (memory_limits_) {
    // All or nothing: what is left of a command after its largest process was killed is of no use to anybody.
    ANCHORHOLD_CHECK(write_text(path / "memory.oom.group", "1"));
    if (limits.memory_bytes > 0)
      ANCHORHOLD_CHECK(write_text(path / "memory.max", std::to_string(limits.memory_bytes)));
  }
  if (process_limits_ && limits.processes > 0) {
    ANCHORHOLD_CHECK(write_text(path / "pids.max", std::to_string(limits.processes)));
    group->process_events_.reset(openat(group->directory_.get(), "pids.events", O_RDONLY | O_CLOEXEC));
  }
  return group;
}

}  // namespace anchorhold::guest
