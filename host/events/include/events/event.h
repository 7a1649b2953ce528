// What a process that enforces a boundary reports, and the interface it reports through. Whoever refuses,
// allows, starts or ends something makes an Event of a name in event_names.h and gives it to its EventSink
// before the effect is acknowledged to anybody.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/id.h"
#include "events/event_names.h"

namespace anchorhold::events {

using Value = std::variant<std::string, std::int64_t, bool, std::vector<std::string>>;
using Attributes = std::map<std::string, Value, std::less<>>;

// Attributes that many events have. Others are named by whoever writes them ("mount.name", "exec.id",
// "cause").
namespace key {
inline constexpr std::string_view session_id = "session.id";
inline constexpr std::string_view task_id = "task.id";
inline constexpr std::string_view vm_id = "vm.id";
inline constexpr std::string_view user_name = "user.name";  // set by the log itself
inline constexpr std::string_view redacted =
    "event.redacted";                               // names of attributes that were left out; set by the log
inline constexpr std::string_view cause = "cause";  // one line for a person
inline constexpr std::string_view guest_reported =
    "guest.reported.";  // prefix: said by the guest, believed by nobody
}  // namespace key

// What a person may not want in a log. An attribute of a category that the log does not capture is left out
// before it is stored; its name is kept in `event.redacted`.
enum class ContentCategory { prompts, arguments, results, paths };

class Event {
 public:
  explicit Event(const EventName& name) : name_(name), severity_(name.severity) {}

  Event& set(std::string_view key, std::string_view value);
  Event& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  Event& set(std::string_view key, std::int64_t value);
  Event& set(std::string_view key, std::uint64_t value);  // beyond int64: its greatest value
  Event& set(std::string_view key, int value) { return set(key, std::int64_t{value}); }
  Event& set(std::string_view key, bool value);
  Event& set(std::string_view key, std::vector<std::string> value);
  // The same for what is content: stored only when the log captures the category.
  Event& set_content(ContentCategory category, std::string_view key, Value value);
  // The same for what a guest said: the key gets the prefix guest.reported.
  Event& set_guest_reported(std::string_view key, Value value);
  // Keeps a value that is already there; for the context a sink adds.
  Event& set_default(std::string_view key, Value value);

  Event& set(const SessionId& id) { return set(key::session_id, id.value()); }
  Event& set(const TaskId& id) { return set(key::task_id, id.value()); }
  // An end that went wrong is graver than the table says.
  Event& set_severity(Severity severity);

  const EventName& name() const { return name_; }
  Severity severity() const { return severity_; }
  const Attributes& attributes() const { return attributes_; }
  // Key and category of every attribute given as content.
  const std::map<std::string, ContentCategory, std::less<>>& content() const { return content_; }

 private:
  EventName name_;
  Severity severity_;
  Attributes attributes_;
  std::map<std::string, ContentCategory, std::less<>> content_;
};

// Where events go. Safe from any thread. When recording a boundary event fails, what it stands for must not
// be done.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual Status record(Event event) = 0;
};

// Adds what is the same for everything in one session or task ("session.id", "task.id", "vm.id"). The sink
// behind it must outlive it.
class ContextSink : public EventSink {
 public:
  ContextSink(EventSink& sink, Attributes context) : sink_(sink), context_(std::move(context)) {}
  Status record(Event event) override;

 private:
  EventSink& sink_;
  const Attributes context_;
};

}  // namespace anchorhold::events
