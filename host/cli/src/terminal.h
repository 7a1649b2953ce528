// The person's terminal while a command in the guest has it: raw, and put back whatever happens.
#pragma once

#include <optional>
#include <termios.h>

#include "base/error.h"
#include "session/guest_client.h"

namespace anchorhold::cli {

// The size of the terminal on standard output, or input; 24 × 80 when there is none.
session::TerminalSize terminal_size();

class RawTerminal {
 public:
  // Nothing is changed when standard input is no terminal.
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  std::optional<termios> saved_;
};

}  // namespace anchorhold::cli
