#include "events/event.h"

#include <limits>

namespace anchorhold::events {

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::info:
      return "info";
    case Severity::warn:
      return "warn";
    case Severity::error:
      return "error";
  }
  return "unknown";
}

Event& Event::set(std::string_view key, std::string_view value) {
  attributes_.insert_or_assign(std::string(key), Value(std::string(value)));
  return *this;
}

Event& Event::set(std::string_view key, std::int64_t value) {
  attributes_.insert_or_assign(std::string(key), Value(value));
  return *this;
}

Event& Event::set(std::string_view key, std::uint64_t value) {
  constexpr auto greatest = std::numeric_limits<std::int64_t>::max();
  return set(key, value > static_cast<std::uint64_t>(greatest) ? greatest : static_cast<std::int64_t>(value));
}

Event& Event::set(std::string_view key, bool value) {
  attributes_.insert_or_assign(std::string(key), Value(value));
  return *this;
}

Event& Event::set(std::string_view key, std::vector<std::string> value) {
  attributes_.insert_or_assign(std::string(key), Value(std::move(value)));
  return *this;
}

Event& Event::set_content(ContentCategory category, std::string_view key, Value value) {
  content_.insert_or_assign(std::string(key), category);
  attributes_.insert_or_assign(std::string(key), std::move(value));
  return *this;
}

Event& Event::set_guest_reported(std::string_view key, Value value) {
  attributes_.insert_or_assign(std::string(key::guest_reported) + std::string(key), std::move(value));
  return *this;
}

Event& Event::set_default(std::string_view key, Value value) {
  attributes_.try_emplace(std::string(key), std::move(value));
  return *this;
}

Event& Event::set_severity(Severity severity) {
  severity_ = severity;
  return *this;
}

Status ContextSink::record(Event event) {
  for (const auto& [key, value] : context_) event.set_default(key, value);
  return sink_.record(std::move(event));
}

}  // namespace anchorhold::events
