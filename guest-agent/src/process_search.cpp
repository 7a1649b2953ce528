#include "process_search.h"

#include <charconv>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <signal.h>
#include <string_view>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold::guest {
namespace {

std::string environment_of(int proc, const char* pid) {
  UniqueFd file(openat(proc, (std::string(pid) + "/environ").c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(1, '\0');
  constexpr std::size_t most = 4u << 20;
  char buffer[16384];
  while (file && text.size() < most) {
    ssize_t got = read(file.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

std::vector<pid_t> processes_of(const std::string& exec_id) {
  std::vector<pid_t> found;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (!proc) return found;
  std::string wanted = std::string(1, '\0') + "ANCHORHOLD_EXEC_ID=" + exec_id + std::string(1, '\0');
  while (dirent* entry = readdir(proc.get())) {
    std::string_view name = entry->d_name;
    pid_t pid = 0;
    auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size() || pid <= 1 || pid == getpid()) continue;
    if (environment_of(dirfd(proc.get()), entry->d_name).find(wanted) != std::string::npos)
      found.push_back(pid);
  }
  return found;
}

void kill_processes_of(const std::string& exec_id) {
  constexpr int most_rounds = 20;
  for (int round = 0; round < most_rounds; ++round) {
    auto found = processes_of(exec_id);
    if (found.empty()) return;
    for (pid_t pid : found) kill(pid, SIGKILL);
  }
}

}  // namespace anchorhold::guest
