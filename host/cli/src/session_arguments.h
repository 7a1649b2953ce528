// The words of `anchorhold sessions`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/arguments.h"

namespace anchorhold::cli {

void add_sessions_command(CLI::App& app, SessionsCommand& into, bool& json);
// After everything was read.
Status finish_sessions(const CLI::App& app, SessionsCommand& into);

}  // namespace anchorhold::cli
