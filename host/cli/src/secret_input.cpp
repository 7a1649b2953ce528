#include "secret_input.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold::cli {
namespace {

constexpr std::size_t max_line = 16 << 10;
constexpr char ctrl_c = 3, ctrl_d = 4, backspace = 8, del = 127, ctrl_u = 21;

// Without an echo, and with each key as it is, so that an interrupt is ours to clean up after. Put back
// whatever happens.
class HiddenTerminal {
 public:
  explicit HiddenTerminal(int fd) : fd_(fd) {
    if (tcgetattr(fd_, &saved_) != 0) return;
    termios hidden = saved_;
    hidden.c_iflag |= ICRNL;
    hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ICANON | ISIG);
    hidden.c_cc[VMIN] = 1;
    hidden.c_cc[VTIME] = 0;
    changed_ = tcsetattr(fd_, TCSAFLUSH, &hidden) == 0;
  }
  ~HiddenTerminal() {
    if (changed_) tcsetattr(fd_, TCSADRAIN, &saved_);
  }
  HiddenTerminal(const HiddenTerminal&) = delete;
  HiddenTerminal& operator=(const HiddenTerminal&) = delete;
  bool hidden() const { return changed_; }

 private:
  int fd_;
  termios saved_{};
  bool changed_ = false;
};

void say(int fd, std::string_view text) {
  (void)write_all(fd, std::as_bytes(std::span(text)));
}

Result<Secret> read_line(int fd) {
  Secret line = Secret::zeros(max_line);
  std::size_t size = 0;
  for (;;) {
    char key = 0;
    ssize_t got = read(fd, &key, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || key == ctrl_c || (key == ctrl_d && size == 0))
      return fail(ErrorCode::cancelled, "nothing was entered");
    if (key == '\n') return Secret::of(line.expose().substr(0, size));
    if (key == backspace || key == del)
      size -= size > 0 ? 1 : 0;
    else if (key == ctrl_u)
      size = 0;
    else if (size == max_line)
      return fail(ErrorCode::invalid_argument, "the secret is longer than 16 KiB");
    else
      line.data()[size++] = key;
  }
}

}  // namespace

Result<Secret> ask_secret(const std::string& words) {
  UniqueFd terminal(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (!terminal) return fail(ErrorCode::unavailable, "there is no terminal to ask on");
  HiddenTerminal hidden(terminal.get());
  if (!hidden.hidden()) return fail(ErrorCode::unavailable, "the terminal would show what is typed");
  say(terminal.get(), words + " (not shown): ");
  auto line = read_line(terminal.get());
  say(terminal.get(), "\n");
  return line;
}

Result<Secret> ask_passphrase(bool fresh) {
  Secret words =
      ANCHORHOLD_TRY(ask_secret(fresh ? "New passphrase of the vault" : "Passphrase of the vault"));
  if (!fresh) return words;
  if (words.empty()) return fail(ErrorCode::invalid_argument, "a passphrase is not empty");
  Secret again = ANCHORHOLD_TRY(ask_secret("Once more"));
  if (words.expose() != again.expose())
    return fail(ErrorCode::invalid_argument, "the two passphrases are not the same");
  return words;
}

Result<Secret> read_secret_input(std::size_t most) {
  Secret buffer = Secret::zeros(most + 3);
  std::size_t size = 0;
  while (size < buffer.size()) {
    ssize_t got = read(STDIN_FILENO, buffer.data() + size, buffer.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "reading the secret from standard input");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size == buffer.size()) return fail(ErrorCode::invalid_argument, "the secret is longer than 16 KiB");
  std::string_view text = buffer.expose().substr(0, size);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return Secret::of(text);
}

}  // namespace anchorhold::cli
