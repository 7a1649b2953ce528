// Secrets as a person gives them: from standard input, or typed on a terminal that does not show them.
#pragma once

#include <string>

#include "base/error.h"
#include "base/secret.h"

namespace anchorhold::cli {

// A line that is typed on the terminal of this process, after these words, without an echo. unavailable when
// there is no terminal; cancelled on Ctrl-C or Ctrl-D.
Result<Secret> ask_secret(const std::string& words);
// A new passphrase is asked for twice.
Result<Secret> ask_passphrase(bool fresh);

// All of standard input, without the end of its last line. Never of a terminal.
Result<Secret> read_secret_input(std::size_t most);

}  // namespace anchorhold::cli
