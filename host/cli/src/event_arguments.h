// The words of `anchorhold events`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/arguments.h"

namespace anchorhold::cli {

void add_events_command(CLI::App& app, EventsCommand& into, bool& json);

}  // namespace anchorhold::cli
