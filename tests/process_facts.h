// What the kernel says of a process, and what a test that needs many descriptors asks of it.
#pragma once

#include <fstream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/types.h>

namespace anchorhold::testing {

// A line of /proc/PID/status such as "VmRSS:" or, without what is shared, "RssAnon:". 0 when there is none.
inline long status_kib(pid_t pid, std::string_view name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::stol(line.substr(name.size()));
  return 0;
}

// This process may have as many descriptors from here on as it is allowed to have: how many that is. 0 when
// it failed.
inline rlim_t raise_descriptor_limit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  files.rlim_cur = files.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_max : 0;
}

}  // namespace anchorhold::testing
