#include "libvirt/qemu_process.h"

#include <fmt/format.h>
#include <fstream>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>

#include "reaper/reaping.h"

namespace anchorhold::hypervisor {

std::optional<QemuProcess> QemuProcess::find(const std::filesystem::path& pid_file,
                                             const std::filesystem::path& folder) {
  int number = 0;
  if (!(std::ifstream(pid_file) >> number) || number <= 1) return std::nullopt;
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, number, 0)));
  if (!pidfd) return std::nullopt;
  std::ostringstream command_line;
  command_line << std::ifstream(fmt::format("/proc/{}/cmdline", number), std::ios::binary).rdbuf();
  pollfd entry{pidfd.get(), POLLIN, 0};
  // Still alive after the look, so it is the process that was looked at.
  if (!works_in(command_line.str(), folder) || poll(&entry, 1, 0) != 0) return std::nullopt;
  return QemuProcess(number, std::move(pidfd));
}

void QemuProcess::kill() const {
  syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

}  // namespace anchorhold::hypervisor
