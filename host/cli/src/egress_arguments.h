// The words of `anchorhold egress`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/arguments.h"

namespace anchorhold::cli {

void add_egress_command(CLI::App& app, EgressCommand& into, bool& json);

}  // namespace anchorhold::cli
