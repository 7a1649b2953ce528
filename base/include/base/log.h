// Diagnostics to standard error, through spdlog. Quiet by default: people get errors and hints from the
// command line, not from here. Events that matter to anybody go to the event log, never only here.
#pragma once

#include <string_view>

namespace anchorhold {

enum class LogLevel { error, warning, debug };

// Once per process, before threads. The program's name is put before each line.
void start_log(std::string_view program, LogLevel level);
void log_error(std::string_view message);
void log_warning(std::string_view message);
void log_debug(std::string_view message);

}  // namespace anchorhold
