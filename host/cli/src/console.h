// Everything the program says to a person or to another program. Results go to standard output, all else to
// standard error, so that what a command in the guest prints is never mixed with words of ours.
#pragma once

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold::cli {

using Json = nlohmann::ordered_json;

// Exit statuses of the program itself; a command's own status is passed on.
namespace exit_status {
inline constexpr int ok = 0;
inline constexpr int not_completed = 1;  // a task that did not complete, a log or an image that is not whole
inline constexpr int time_limit = 124;
inline constexpr int own_failure = 125;
inline constexpr int killed = 137;
}  // namespace exit_status

class Console {
 public:
  enum class Form { text, json };
  Console(Form form, bool verbose);

  bool json() const { return form_ == Form::json; }
  bool verbose() const { return verbose_; }
  // Whether standard error is a terminal that can show a line that changes.
  bool live() const { return live_; }

  // A line of the result; not in JSON form.
  void line(std::string_view text);
  // Text of the result as it comes, without an end of line.
  void text(std::string_view text);
  // An object of the result; only in JSON form.
  void object(const Json& object);
  // A line beside the result, on standard error.
  void note(std::string_view text);
  // The same, only with --verbose.
  void detail(std::string_view text);
  // "error: …", "to do: …"; in JSON form also an object of type "error".
  void error(const Error& error);
  // A line that is overwritten by the next; only when live. Empty: takes it away.
  void progress(std::string_view text);

  // Standard output cannot be written: its reader is gone, or the disk is full.
  bool broken() const { return broken_.load(); }
  // The exit status of a command that could not say all it had to say; tells the person, unless it is only
  // that the reader had enough.
  int unsaid();
  int unsaid(const Error& why);

 private:
  void clear_progress();
  void write(int fd, std::string_view bytes);

  const Form form_;
  const bool verbose_;
  const bool live_;
  std::mutex mutex_;
  bool progress_shown_ = false;
  std::atomic<bool> broken_ = false;
  Error why_broken_;  // of the first write that failed
};

// What a person can do about it, in one line: the error's own hint, or what usually helps with its kind.
std::string advice(const Error& error);
// "▕██████    ▏ 60%"; for progress lines.
std::string bar(int percent);
// As a person may see it: control characters (which could steer a terminal) become visible, bytes that are
// not UTF-8 become U+FFFD. Line feeds and tabs stay.
std::string printable(std::string_view text);
// The same on one line, at most so many bytes.
std::string one_line(std::string_view text, std::size_t limit);
// The same, at most so many characters; for a line of a terminal.
std::string one_line_of(std::string_view text, std::size_t characters);

}  // namespace anchorhold::cli
