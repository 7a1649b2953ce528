#include "libvirt/exit_cause.h"

#include <charconv>
#include <fmt/format.h>
#include <fstream>

namespace anchorhold::hypervisor {

MachineExit exit_from(const EndFacts& facts) {
  const bool by_guest = facts.shutdown_reason == "guest-shutdown";
  if (facts.time_limit)
    return {ExitCause::time_limit,
            fmt::format("it ran for its limit of {}",
                        anchorhold::to_string(facts.wall_time.value_or(std::chrono::milliseconds(0))))};
  if (facts.stop_requested) return {ExitCause::stopped, by_guest ? "the guest powered off when asked" : ""};
  if (by_guest) return {ExitCause::guest_shutdown, ""};
  if (facts.shutdown_reason.starts_with("guest-")) return {ExitCause::guest_reset, facts.console_tail};
  std::string detail = facts.shutdown_reason.empty()
                           ? "QEMU was killed from outside or crashed"
                           : fmt::format("QEMU was told to end ({})", facts.shutdown_reason);
  if (facts.oom_kills > 0)
    detail += "; the computer ran out of memory and its kernel ended a process at that time";
  if (!facts.qemu_tail.empty()) detail += "\n" + facts.qemu_tail;
  return {ExitCause::process_lost, detail};
}

std::uint64_t count_oom_kills() {
  std::ifstream file("/proc/vmstat");
  for (std::string name, value; file >> name >> value;) {
    if (name != "oom_kill") continue;
    std::uint64_t count = 0;
    std::from_chars(value.data(), value.data() + value.size(), count);
    return count;
  }
  return 0;
}

}  // namespace anchorhold::hypervisor
