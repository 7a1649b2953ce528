// Server-sent events from bytes that arrive in any pieces. Source: HTML Living Standard, section 9.2.6
// "Interpreting an event stream". Memory is bounded by max_event_bytes; what is longer is an error.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold::agent {

struct SseEvent {
  std::string name;  // "message" when the stream names none
  std::string data;
};

class SseParser {
 public:
  static constexpr std::size_t max_event_bytes = 16u << 20;

  // Called for every complete event with data; an error ends feed() with that error.
  using Sink = std::function<Status(const SseEvent&)>;
  explicit SseParser(Sink sink, std::size_t limit = max_event_bytes)
      : sink_(std::move(sink)), limit_(limit) {}
  Status feed(std::string_view bytes);

 private:
  Status end_of_line();
  void field(std::string_view line);

  Sink sink_;
  std::size_t limit_;
  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool after_cr_ = false;  // a line feed that follows belongs to the same end of line
  bool at_start_ = true;   // a byte order mark may stand here
};

}  // namespace anchorhold::agent
