#include "session/process_identity.h"

#include <charconv>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold::session {
namespace {

struct ProcessStat {
  char state = '?';
  std::uint64_t start_ticks = 0;
};

// The command's name, field 2, may hold spaces and brackets; the last bracket ends it.
std::optional<ProcessStat> parse_stat(const std::string& text) {
  std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 2 >= text.size()) return std::nullopt;
  ProcessStat stat{.state = text[end + 2], .start_ticks = 0};
  std::size_t at = end + 2;
  for (int field = 3; field < 22; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  auto [last, error] = std::from_chars(text.data() + at, text.data() + text.size(), stat.start_ticks);
  if (error != std::errc()) return std::nullopt;
  return stat;
}

// Nothing when there is no such process.
Result<std::optional<ProcessStat>> read_stat(pid_t pid) {
  auto text = read_file(fmt::format("/proc/{}/stat", pid), 16 * 1024);
  if (!text) return std::optional<ProcessStat>();
  auto stat = parse_stat(*text);
  if (!stat) return fail(ErrorCode::internal, fmt::format("/proc/{}/stat is not as expected", pid));
  return stat;
}

Result<std::string> boot_id() {
  std::string text = ANCHORHOLD_TRY(read_file("/proc/sys/kernel/random/boot_id", 4096));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Result<ProcessIdentity> ProcessIdentity::of_this_process() {
  ProcessIdentity identity;
  identity.pid = getpid();
  auto stat = ANCHORHOLD_TRY(read_stat(identity.pid));
  if (!stat) return fail(ErrorCode::failed_precondition, "/proc cannot be read", "mount /proc");
  identity.start_ticks = stat->start_ticks;
  identity.boot = ANCHORHOLD_TRY(boot_id());
  return identity;
}

Result<std::optional<UniqueFd>> open_process(const ProcessIdentity& identity) {
  if (identity.pid <= 0 || ANCHORHOLD_TRY(boot_id()) != identity.boot) return std::optional<UniqueFd>();
  // First hold the process, then look whether it is the right one: it can no longer be replaced by another.
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)));
  if (!pidfd) {
    if (errno == ESRCH) return std::optional<UniqueFd>();
    return fail_errno(errno, fmt::format("process {}", identity.pid));
  }
  auto stat = ANCHORHOLD_TRY(read_stat(identity.pid));
  if (!stat || stat->start_ticks != identity.start_ticks || stat->state == 'Z' || stat->state == 'X')
    return std::optional<UniqueFd>();
  return std::optional(std::move(pidfd));
}

Status signal_process(int pidfd, int number) {
  if (syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0) != 0 && errno != ESRCH)
    return fail_errno(errno, "sending a signal");
  return {};
}

}  // namespace anchorhold::session
