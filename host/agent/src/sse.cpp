#include "sse.h"

#include <fmt/format.h>

namespace anchorhold::agent {

Status SseParser::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    auto end = bytes.find_first_of("\r\n");
    std::string_view piece = bytes.substr(0, end);
    if (line_.size() + piece.size() + event_.data.size() > limit_)
      return fail(ErrorCode::data_loss, fmt::format("the server sent an event larger than {} bytes", limit_));
    line_ += piece;
    if (end == bytes.npos) return {};
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    ANCHORHOLD_CHECK(end_of_line());
  }
  return {};
}

Status SseParser::end_of_line() {
  std::string_view line = line_;
  if (at_start_ && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  at_start_ = false;
  if (!line.empty()) {
    field(line);
    line_.clear();
    return {};
  }
  line_.clear();
  SseEvent event = std::move(event_);
  bool complete = has_data_;
  event_ = {};
  has_data_ = false;
  if (!complete) return {};
  if (event.name.empty()) event.name = "message";
  return sink_(event);
}

void SseParser::field(std::string_view line) {
  auto colon = line.find(':');
  if (colon == 0) return;  // a comment
  std::string_view name = line.substr(0, colon);
  std::string_view value = colon == line.npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "event") event_.name = value;
  if (name == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  }
}

}  // namespace anchorhold::agent
