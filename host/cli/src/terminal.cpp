#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace anchorhold::cli {

session::TerminalSize terminal_size() {
  for (int fd : {STDOUT_FILENO, STDIN_FILENO}) {
    winsize size{};
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
      return {size.ws_row, size.ws_col};
  }
  return {};
}

RawTerminal::RawTerminal() {
  termios current{};
  if (tcgetattr(STDIN_FILENO, &current) != 0) return;
  saved_ = current;
  cfmakeraw(&current);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &current);
}

RawTerminal::~RawTerminal() {
  if (saved_) tcsetattr(STDIN_FILENO, TCSADRAIN, &*saved_);
}

}  // namespace anchorhold::cli
