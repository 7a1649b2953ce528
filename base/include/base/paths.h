// Where the project keeps things: the XDG base directories of the person, and its own programs.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/error.h"

namespace anchorhold {

// Each is made (0700) when it is not there. Source: XDG Base Directory Specification 0.8.
Result<std::filesystem::path> config_directory();  // $XDG_CONFIG_HOME/anchorhold, ~/.config/anchorhold
Result<std::filesystem::path> cache_directory();   // $XDG_CACHE_HOME/anchorhold, ~/.cache/anchorhold
Result<std::filesystem::path> state_directory();   // $XDG_STATE_HOME/anchorhold, ~/.local/state/anchorhold
// Sockets and other things that end with the login: $XDG_RUNTIME_DIR/anchorhold, else /tmp/anchorhold-<uid>
// (0700 and owned by the user, or an error). Short: unix socket paths hold 107 bytes.
Result<std::filesystem::path> runtime_directory();

// A program of ours ("anchorhold-vsockd"): beside the running executable, or in ../libexec/anchorhold of it.
Result<std::filesystem::path> own_program(std::string_view name);

}  // namespace anchorhold
