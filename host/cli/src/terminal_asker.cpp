#include "terminal_asker.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold::cli {
namespace {

using session::Approval;

// The terminal as a person types lines into it, whatever a command made of it; put back at the end. What was
// typed before was not meant as an answer and is thrown away.
class LineTerminal {
 public:
  explicit LineTerminal(int fd) : fd_(fd) {
    if (tcgetattr(fd_, &saved_) != 0) return;
    termios lines = saved_;
    lines.c_iflag |= ICRNL;
    lines.c_oflag |= OPOST | ONLCR;
    lines.c_lflag |= ICANON | ECHO | ISIG;
    changed_ = tcsetattr(fd_, TCSAFLUSH, &lines) == 0;
  }
  ~LineTerminal() {
    if (changed_) tcsetattr(fd_, TCSADRAIN, &saved_);
  }
  LineTerminal(const LineTerminal&) = delete;
  LineTerminal& operator=(const LineTerminal&) = delete;

 private:
  int fd_;
  termios saved_{};
  bool changed_ = false;
};

// Of the process in the foreground only: another one would be stopped for asking.
UniqueFd open_terminal() {
  UniqueFd fd(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (fd && tcgetpgrp(fd.get()) != getpgrp()) fd.reset();
  return fd;
}

// A line, or less when the terminal is gone or a stop is requested.
std::string read_line(int terminal, std::stop_token stop) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC));
  std::stop_callback on_stop(stop, [&] {
    std::uint64_t one = 1;
    (void)!write(wake.get(), &one, sizeof one);
  });
  std::string line;
  for (;;) {
    pollfd waited[2] = {{terminal, POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (poll(waited, 2, -1) < 0 && errno != EINTR) return {};
    if (waited[1].revents != 0) return {};
    if (waited[0].revents == 0) continue;
    char byte = 0;
    ssize_t got = read(terminal, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    if (byte == '\n') return line;
    if (line.size() < 64) line += byte;
  }
}

Approval answer_of(std::string_view line) {
  if (line == "y" || line == "Y" || line == "yes") return Approval::allow_once;
  if (line == "a" || line == "A" || line == "all") return Approval::allow_for_session;
  return Approval::deny;
}

}  // namespace

void TerminalAsker::while_asking(std::function<void(bool)> pause) {
  std::unique_lock lock(mutex_, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(20))) {
    if (pause) continue;
    std::lock_guard stopping(stop_mutex_);
    stop_.request_stop();
  }
  pause_ = std::move(pause);
}

bool TerminalAsker::can_ask() const {
  return !console_.json() && open_terminal();
}

Approval TerminalAsker::ask(const session::Question& question, std::stop_token stop) {
  UniqueFd terminal = open_terminal();
  std::string what = fmt::format("{} (now: {})", printable(question.text), one_line(question.about, 200));
  if (!terminal || console_.json()) {
    console_.note("refused: " + what);
    console_.note(fmt::format("to do: {}, or run it on a terminal and answer there",
                              question.kind == session::Question::Kind::egress
                                  ? "allow it with --allow " + printable(question.subject)
                                  : "allow more with --bulk-limit N"));
    return Approval::deny;
  }
  std::unique_lock shown(terminal_, std::defer_lock);
  while (!shown.try_lock_for(std::chrono::milliseconds(50)))
    if (stop.stop_requested()) return Approval::deny;
  std::lock_guard lock(mutex_);
  std::stop_source cancel;
  {
    std::lock_guard stopping(stop_mutex_);
    stop_ = cancel;
  }
  std::stop_callback on_stop(stop, [&] { cancel.request_stop(); });
  if (pause_) pause_(true);
  Approval answer;
  {
    LineTerminal lines(terminal.get());
    console_.progress("");
    console_.note("? " + what);
    console_.note(fmt::format(
        "  Allow it? y: yes, {}; a: yes, in all of this session; anything else, or {} seconds without an "
        "answer: no",
        question.kind == session::Question::Kind::egress ? "this once" : "as much again",
        question.limit / std::chrono::seconds(1)));
    answer = answer_of(read_line(terminal.get(), cancel.get_token()));
    console_.note(answer == Approval::deny ? "  refused" : "  allowed");
  }
  if (pause_) pause_(false);
  return answer;
}

}  // namespace anchorhold::cli
