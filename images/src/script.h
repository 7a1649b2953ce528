// Runs a recipe's script so that nothing of it outlives us: the script and all it starts share a process
// group, and a watchdog in that group ends it when a pipe to us closes, whether we were asked to stop or were
// killed.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anchorhold::images {

struct Script {
  std::vector<std::string> argv;         // argv[0] is an absolute path
  std::vector<std::string> environment;  // added to ours, "K=V"
  std::filesystem::path working_directory;
  std::filesystem::path log;  // gets all output
  std::function<void(std::string_view line)> on_line;
};

// The error of a script that failed has its last lines and names the log. A stop is ErrorCode::cancelled.
Status run_script(const Script& script, std::stop_token stop);

// Runs a command to its end and returns what it printed, at most 64 KiB.
Result<std::string> capture_output(const std::vector<std::string>& argv);
// The absolute path of a program, looked for in PATH and in the folders of system administration; empty: not
// there.
std::string find_program(std::string_view name);

}  // namespace anchorhold::images
