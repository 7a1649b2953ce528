#include "terminal.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace anchorhold::guest {

Result<Terminal> open_terminal(std::uint32_t rows, std::uint32_t columns, uid_t owner) {
  Terminal pair;
  pair.controller.reset(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!pair.controller) return fail_errno(errno, "/dev/ptmx");
  int locked = 0;
  if (ioctl(pair.controller.get(), TIOCSPTLCK, &locked) != 0)
    return fail_errno(errno, "unlocking a terminal");
  // Not by path: /dev/pts may be another one than ours in the command's view.
  pair.terminal.reset(ioctl(pair.controller.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pair.terminal) return fail_errno(errno, "opening a terminal");
  if (geteuid() == 0 && fchown(pair.terminal.get(), owner, static_cast<gid_t>(-1)) != 0)
    return fail_errno(errno, "giving the terminal to its user");
  ANCHORHOLD_CHECK(resize_terminal(pair.controller.get(), rows, columns));
  return pair;
}

Status resize_terminal(int controller, std::uint32_t rows, std::uint32_t columns) {
  winsize size{};
  size.ws_row = static_cast<unsigned short>(std::min(rows, 65535u));
  size.ws_col = static_cast<unsigned short>(std::min(columns, 65535u));
  if (ioctl(controller, TIOCSWINSZ, &size) != 0) return fail_errno(errno, "resizing the terminal");
  return {};
}

pid_t foreground_group(int controller) {
  pid_t group = 0;
  return ioctl(controller, TIOCGPGRP, &group) == 0 ? group : 0;
}

}  // namespace anchorhold::guest
