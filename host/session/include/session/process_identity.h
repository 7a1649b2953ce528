// Which process a record means, for as long as the record lives: a pid alone is reused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::session {

struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // since boot: /proc/<pid>/stat, field 22 (proc(5))
  std::string boot;               // /proc/sys/kernel/random/boot_id

  static Result<ProcessIdentity> of_this_process();
  bool operator==(const ProcessIdentity&) const = default;
};

// A pidfd of exactly that process; nothing when it has ended (a zombie has).
Result<std::optional<UniqueFd>> open_process(const ProcessIdentity& identity);
Status signal_process(int pidfd, int number);

}  // namespace anchorhold::session
