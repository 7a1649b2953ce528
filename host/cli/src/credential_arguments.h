// The words of `anchorhold credential`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/arguments.h"

namespace anchorhold::cli {

void add_credential_command(CLI::App& app, CredentialCommand& into, bool& json);
// --credential of what starts a guest: NAME, or NAME=HOST[:PORT].
void add_credential_option(CLI::App& command, GuestArguments& into);

}  // namespace anchorhold::cli
