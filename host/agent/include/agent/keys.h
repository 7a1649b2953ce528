// Where model keys come from: the environment, or a file. They stay on the host and go into one HTTP header.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/secret.h"

namespace anchorhold::agent {

// Takes ANTHROPIC_API_KEY and OPENAI_API_KEY out of the environment, so that no program we start inherits
// them; they are remembered for environment_key(). Call it first in main, before threads.
void withdraw_keys_from_environment();

// The key withdrawn before or still in the environment; empty when there is none.
Secret environment_key(const std::string& variable);

// A regular file of at most 16 KiB whose trimmed content is one line of printable ASCII.
Result<Secret> read_key_file(const std::filesystem::path& file);
// What a person should be told about the file: that others can read it. Empty: nothing.
std::string key_file_warning(const std::filesystem::path& file);

}  // namespace anchorhold::agent
