#include "terminal_asker.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include "answer_words.h"
#include "base/fd.h"

namespace anchorhold::cli {
namespace {

constexpr std::string_view on_the_terminal = "on the terminal", nobody_there = "there is nobody to ask";

using session::Approval;
using session::Question;

// The terminal as a person types lines into it, whatever a command made of it; put back at the end. What was
// typed before was not meant as an answer and is thrown away.
class LineTerminal {
 public:
  enum class Typed { dropped, kept };
  explicit LineTerminal(int fd, Typed typed = Typed::dropped) : fd_(fd) {
    if (tcgetattr(fd_, &saved_) != 0) return;
    termios lines = saved_;
    lines.c_iflag |= ICRNL;
    lines.c_oflag |= OPOST | ONLCR;
    lines.c_lflag |= ICANON | ECHO | ISIG;
    changed_ = tcsetattr(fd_, typed == Typed::dropped ? TCSAFLUSH : TCSADRAIN, &lines) == 0;
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

// What is kept for later sessions is written out, so that no slip of the finger does it.
Approval answer_of(std::string_view line, Question::Kind kind) {
  Approval given = Approval::deny;
  if (line == "y" || line == "Y" || line == "yes" || line == "once") given = Approval::allow_once;
  if (line == "a" || line == "A" || line == "all" || line == "s" || line == "session")
    given = Approval::allow_for_session;
  if (line == "always") given = Approval::allow_always;
  if (line == "never") given = Approval::deny_always;
  auto possible = session::answers_to(kind);
  return std::find(possible.begin(), possible.end(), given) == possible.end() ? Approval::deny : given;
}

std::string in_words(Approval answer) {
  switch (answer) {
    case Approval::deny:
      return "refused";
    case Approval::allow_once:
      return "allowed once";
    case Approval::allow_for_session:
      return "allowed in all of this session";
    case Approval::allow_always:
      return "allowed always";
    case Approval::deny_always:
      return "refused always";
  }
  return "refused";
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
  return waits_ || (!console_.json() && open_terminal());
}

void TerminalAsker::tell(const Question& question) {
  console_.progress("");
  console_.object(to_json(question, question.limit));
  console_.note("? " + described(question));
  if (!question.activity.empty()) console_.note("  running: " + one_line(question.activity, 400));
}

std::optional<session::Settled> TerminalAsker::ask(const Question& question, std::stop_token stop) {
  UniqueFd terminal = open_terminal();
  if (console_.json()) terminal.reset();
  if (!terminal && !waits_) {
    console_.note("refused: " + described(question));
    console_.note(fmt::format("to do: {}, or run it on a terminal and answer there",
                              question.kind == Question::Kind::egress
                                  ? "allow it with --allow " + printable(question.subject)
                                  : "allow more with --bulk-limit N"));
    return session::Settled{Approval::deny, std::string(nobody_there)};
  }
  if (!terminal) {
    tell(question);
    console_.note(fmt::format("  Answer within {} seconds: anchorhold egress answer {} {}",
                              question.limit / std::chrono::seconds(1), question.id(),
                              words_for(question.kind)));
    UniqueFd never(eventfd(0, EFD_CLOEXEC));
    (void)read_line(never.get(), stop);
    return std::nullopt;
  }
  std::unique_lock shown(terminal_, std::defer_lock);
  while (!shown.try_lock_for(std::chrono::milliseconds(50)))
    if (stop.stop_requested()) return std::nullopt;
  std::lock_guard lock(mutex_);
  std::stop_source cancel;
  {
    std::lock_guard stopping(stop_mutex_);
    stop_ = cancel;
  }
  std::stop_callback on_stop(stop, [&] { cancel.request_stop(); });
  if (pause_) pause_(true);
  std::optional<session::Settled> given;
  {
    LineTerminal lines(terminal.get());
    tell(question);
    const bool egress = question.kind == Question::Kind::egress;
    console_.note(fmt::format(
        "  Allow it? y: yes, {}; a: yes, in all of this session;{} anything else, or {} seconds without an "
        "answer: no",
        egress ? "this once" : "as much again", egress ? " always, never: from now on, written out;" : "",
        question.limit / std::chrono::seconds(1)));
    console_.note(fmt::format("  (question {})", question.id()));
    auto line = read_line(terminal.get(), cancel.get_token());
    if (!stop.stop_requested())
      given = session::Settled{answer_of(line, question.kind), std::string(on_the_terminal)};
  }
  if (pause_) pause_(false);
  return given;
}

void TerminalAsker::settled(const Question& question, const session::Settled& end) {
  if (end.how == nobody_there) return;  // said when it was asked
  console_.object(Json{{"type", "answer"},
                       {"question", question.id()},
                       {"answer", end.withdrawn ? std::string_view("none") : word_of(end.answer)},
                       {"how", end.how}});
  UniqueFd terminal = open_terminal();
  std::lock_guard lock(mutex_);
  std::optional<LineTerminal> lines;
  if (terminal) lines.emplace(terminal.get(), LineTerminal::Typed::kept);
  auto what = end.withdrawn ? std::string("not asked any more") : in_words(end.answer);
  if (end.how == on_the_terminal) return console_.note("  " + what);
  console_.note(fmt::format("  {} ({}): {}", what, end.how, printable(question.subject)));
}

}  // namespace anchorhold::cli
