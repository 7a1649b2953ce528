// Pseudo-terminals (pty(7)).
#pragma once

#include <cstdint>
#include <sys/types.h>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::guest {

struct Terminal {
  UniqueFd controller;  // ours: non-blocking
  UniqueFd terminal;    // the command's
};

// The terminal belongs to the user.
Result<Terminal> open_terminal(std::uint32_t rows, std::uint32_t columns, uid_t owner);
Status resize_terminal(int controller, std::uint32_t rows, std::uint32_t columns);
// The process group that Ctrl-C would reach; 0: none.
pid_t foreground_group(int controller);

}  // namespace anchorhold::guest
