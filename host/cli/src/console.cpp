#include "console.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold::cli {
namespace {

bool can_overwrite_lines() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) && terminal && std::string_view(terminal) != "dumb";
}

std::size_t terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 10) return size.ws_col;
  return 80;
}

// The length of the UTF-8 sequence at the start, 0 when there is none (RFC 3629, section 4).
std::size_t sequence_length(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  auto tail = [&](std::size_t count) {
    if (text.size() <= count) return false;
    for (std::size_t i = 1; i <= count; ++i)
      if ((byte(i) & 0xc0) != 0x80) return false;
    return true;
  };
  unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return tail(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    if (!tail(2)) return 0;
    if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f)) return 0;
    return 3;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if (!tail(3)) return 0;
    if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return 0;
    return 4;
  }
  return 0;
}

// C1 controls, and what changes the direction of text (Unicode Bidirectional Algorithm, 2.1 to 2.4), steer a
// terminal too.
bool steers(std::string_view sequence) {
  if (sequence.size() == 2) return sequence[0] == '\xc2' && static_cast<unsigned char>(sequence[1]) < 0xa0;
  if (sequence.size() != 3 || sequence[0] != '\xe2') return false;
  auto second = static_cast<unsigned char>(sequence[1]), third = static_cast<unsigned char>(sequence[2]);
  return (second == 0x80 && third >= 0xaa && third <= 0xae) ||
         (second == 0x81 && third >= 0xa6 && third <= 0xa9);
}

}  // namespace

Console::Console(Form form, bool verbose) : form_(form), verbose_(verbose), live_(can_overwrite_lines()) {}

void Console::write(int fd, std::string_view bytes) {
  auto status = write_all(fd, std::as_bytes(std::span(bytes.data(), bytes.size())));
  if (status || fd != STDOUT_FILENO || broken_) return;
  why_broken_ = std::move(status).error();
  broken_ = true;
}

int Console::unsaid() {
  return unsaid(why_broken_);
}

int Console::unsaid(const Error& why) {
  if (why.code == ErrorCode::unavailable) return 128 + SIGPIPE;
  error({why.code, "the output could not be written: " + why.message, {}});
  return exit_status::own_failure;
}

void Console::clear_progress() {
  if (!progress_shown_) return;
  write(STDERR_FILENO, "\r\x1b[K");
  progress_shown_ = false;
}

void Console::line(std::string_view text) {
  this->text(std::string(text) + "\n");
}

void Console::text(std::string_view text) {
  if (json()) return;
  std::lock_guard lock(mutex_);
  clear_progress();
  write(STDOUT_FILENO, text);
}

void Console::object(const Json& object) {
  if (!json()) return;
  std::lock_guard lock(mutex_);
  clear_progress();
  write(STDOUT_FILENO, object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void Console::note(std::string_view text) {
  std::lock_guard lock(mutex_);
  clear_progress();
  write(STDERR_FILENO, std::string(text) + "\n");
}

void Console::detail(std::string_view text) {
  if (verbose_) note(text);
}

void Console::error(const Error& error) {
  object(Json{{"type", "error"},
              {"code", to_string(error.code)},
              {"message", error.message},
              {"to_do", advice(error)}});
  note("error: " + one_line(error.message, 2000));
  note("to do: " + one_line(advice(error), 2000));
}

void Console::progress(std::string_view text) {
  if (!live_) return;
  std::lock_guard lock(mutex_);
  clear_progress();
  if (text.empty()) return;
  write(STDERR_FILENO, one_line_of(text, terminal_width() - 1));
  progress_shown_ = true;
}

std::string advice(const Error& error) {
  if (!error.hint.empty()) return error.hint;
  switch (error.code) {
    case ErrorCode::invalid_argument:
      return "see what is possible: anchorhold --help";
    case ErrorCode::not_found:
      return "check that it is there and spelled so";
    case ErrorCode::already_exists:
      return "take another name, or remove what is there";
    case ErrorCode::permission_denied:
      return "see whose it is and who may use it: ls -ld PATH";
    case ErrorCode::resource_exhausted:
      return "make room, on the disk or in memory: df -h, free -h";
    case ErrorCode::failed_precondition:
    case ErrorCode::unsupported:
      return "find out what is missing: anchorhold doctor";
    case ErrorCode::unavailable:
    case ErrorCode::deadline_exceeded:
      return "try again; if it stays so: anchorhold doctor";
    case ErrorCode::cancelled:
      return "run it again when you want it";
    case ErrorCode::data_loss:
    case ErrorCode::internal:
      break;
  }
  return "look at what was recorded: anchorhold events list --limit 20; and run it again with --verbose";
}

std::string bar(int percent) {
  constexpr int width = 20;
  percent = std::clamp(percent, 0, 100);
  std::string filled;
  for (int i = 0; i < width; ++i) filled += i < percent * width / 100 ? "█" : "░";
  return fmt::format("{} {:3}%", filled, percent);
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t length = sequence_length(text);
    auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      out += "\xef\xbf\xbd";
      length = 1;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f ||
               steers(text.substr(0, length))) {
      out += byte < 0x80 ? fmt::format("\\x{:02x}", byte) : std::string("\xef\xbf\xbd");
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string one_line(std::string_view text, std::size_t limit) {
  std::string out = printable(text);
  std::replace(out.begin(), out.end(), '\n', ' ');
  std::replace(out.begin(), out.end(), '\t', ' ');
  while (!out.empty() && out.back() == ' ') out.pop_back();
  if (out.size() <= limit) return out;
  std::size_t cut = limit > 3 ? limit - 3 : 0;
  while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xc0) == 0x80) --cut;
  return out.substr(0, cut) + "…";
}

std::string one_line_of(std::string_view text, std::size_t characters) {
  std::string out = one_line(text, text.size() * 4 + 3);  // what becomes visible grows
  auto begins = [&](std::size_t at) { return (static_cast<unsigned char>(out[at]) & 0xc0) != 0x80; };
  std::size_t count = 0, cut = 0;
  for (std::size_t at = 0; at < out.size(); ++at) {
    if (!begins(at)) continue;
    ++count;
    if (count == characters) cut = at;
    if (count > characters) return out.substr(0, cut) + "…";
  }
  return out;
}

}  // namespace anchorhold::cli
