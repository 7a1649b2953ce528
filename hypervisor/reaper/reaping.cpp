#include "reaper/reaping.h"

#include <algorithm>
#include <charconv>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold::hypervisor {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view folder_prefix = "embed-";
// A child of the host between fork and exec looks like the host; it ends by itself or becomes a QEMU within
// this time.
constexpr milliseconds settle_time(60);

std::string read_proc(int process, const char* file) {
  UniqueFd fd(open(fmt::format("/proc/{}/{}", process, file).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char buffer[4096];
  for (ssize_t count; fd && (count = read(fd.get(), buffer, sizeof buffer)) > 0 && text.size() < (1u << 20);)
    text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

UniqueFd open_process(int process) {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

bool has_ended(const UniqueFd& pidfd, milliseconds limit) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(limit.count())) > 0;
}

std::vector<int> all_processes() {
  std::vector<int> processes;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  while (folder) {
    const dirent* entry = readdir(folder.get());
    if (!entry) break;
    std::string_view name = entry->d_name;
    int process = 0;
    auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error == std::errc() && end == name.data() + name.size()) processes.push_back(process);
  }
  return processes;
}

// The descriptor is opened before the last look at the command line: if the process still lives after that
// look, it is the one that was seen.
std::vector<UniqueFd> processes_working_in(const std::filesystem::path& folder) {
  std::vector<UniqueFd> found;
  for (int process : all_processes()) {
    if (process == getpid() || !works_in(read_proc(process, "cmdline"), folder)) continue;
    UniqueFd pidfd = open_process(process);
    if (pidfd && works_in(read_proc(process, "cmdline"), folder) && !has_ended(pidfd, milliseconds(0)))
      found.push_back(std::move(pidfd));
  }
  return found;
}

void kill_process(const UniqueFd& pidfd) {
  syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
}

}  // namespace

std::optional<std::uint64_t> start_time_of(int process) {
  std::string stat = read_proc(process, "stat");
  // The second field is the name in parentheses, and may hold anything.
  std::size_t at = stat.rfind(')');
  if (at == std::string::npos) return std::nullopt;
  // Field 3 comes after ") "; field 22 is 19 spaces further.
  at += 2;
  for (int field = 3; field < 22; ++field) {
    at = stat.find(' ', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(stat.data() + at, stat.data() + stat.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

bool works_in(std::string_view command_line, const std::filesystem::path& folder) {
  std::string_view program = command_line.substr(0, command_line.find('\0'));
  program = program.substr(program.rfind('/') + 1);
  if (!program.starts_with("qemu-system-") && !program.starts_with("anchorhold-")) return false;
  std::string wanted = folder.native() + "/";
  return command_line.find(wanted) != std::string_view::npos;
}

bool end_processes(const std::filesystem::path& folder, std::vector<UniqueFd> also, milliseconds limit) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  for (bool seen_none_before = false;;) {
    std::vector<UniqueFd> found = processes_working_in(folder);
    std::move(also.begin(), also.end(), std::back_inserter(found));
    also.clear();
    for (const auto& pidfd : found) kill_process(pidfd);
    for (const auto& pidfd : found) {
      auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
      if (!has_ended(pidfd, std::max(left, milliseconds(0)))) return false;
    }
    if (found.empty() && seen_none_before) return true;
    seen_none_before = found.empty();
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(settle_time);
  }
}

std::filesystem::path lock_of(const std::filesystem::path& folder) {
  return folder.native() + ".lock";
}

Status remove_folder(const std::filesystem::path& folder) {
  if (!folder.is_absolute() || !folder.filename().native().starts_with(folder_prefix))
    return fail(ErrorCode::invalid_argument, fmt::format("{} is not a folder of a host", folder.string()));
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error)
    return fail(code_from_errno(error.value()),
                fmt::format("removing {}: {}", folder.string(), error.message()));
  unlink(lock_of(folder).c_str());
  return {};
}

std::size_t sweep(const std::filesystem::path& runtime_directory) {
  std::size_t swept = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(runtime_directory, error)) {
    const auto& path = entry.path();
    if (path.extension() != ".lock" || !path.filename().native().starts_with(folder_prefix)) continue;
    // The host holds the lock as long as it lives.
    auto lock = FileLock::acquire(path, FileLock::Wait::no);
    if (!lock) continue;
    auto folder = path.parent_path() / path.stem();
    end_processes(folder, {}, milliseconds(5000));
    if (remove_folder(folder)) ++swept;
  }
  return swept;
}

int run_reaper(UniqueFd host, const std::filesystem::path& folder) {
  std::vector<UniqueFd> watched;
  for (;;) {
    WatchMessage message{};
    ssize_t count = read(host.get(), &message, sizeof message);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (count != sizeof message) continue;
    std::erase_if(watched, [](const UniqueFd& pidfd) { return has_ended(pidfd, milliseconds(0)); });
    UniqueFd pidfd = open_process(message.process);
    if (pidfd && start_time_of(message.process) == message.start_time) watched.push_back(std::move(pidfd));
  }
  bool ended = end_processes(folder, std::move(watched), milliseconds(10'000));
  return ended && remove_folder(folder) ? 0 : 1;
}

}  // namespace anchorhold::hypervisor
