// Why a guest ended, from what was seen of it: a pure function, and the one reading it needs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "hypervisor/hypervisor.h"

namespace anchorhold::hypervisor {

struct EndFacts {
  bool stop_requested = false;
  bool time_limit = false;
  std::optional<std::chrono::milliseconds> wall_time{};
  std::string shutdown_reason{};  // QMP's ShutdownCause; empty when QEMU ended without a word
  std::uint64_t oom_kills =
      0;  // processes that the host's kernel ended for lack of memory during the guest's life
  std::string console_tail{};  // the guest's last lines
  std::string qemu_tail{};     // QEMU's last lines
};

MachineExit exit_from(const EndFacts& facts);

// /proc/vmstat, oom_kill: since the host's boot; 0 where it is not told.
std::uint64_t count_oom_kills();

}  // namespace anchorhold::hypervisor
