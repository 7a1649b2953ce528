#include "event_arguments.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "argument_parts.h"
#include "base/units.h"

namespace anchorhold::cli {
namespace {

// These throw for the library, which puts what they say before the usage.

events::Severity severity_of(const std::string& text) {
  if (text == "info") return events::Severity::info;
  if (text == "warn") return events::Severity::warn;
  if (text == "error") return events::Severity::error;
  throw CLI::ValidationError("--severity", fmt::format("is info, warn or error, not '{}'", text));
}

WallTime time_before_now(const std::string& text) {
  auto age = parse_duration(text);
  if (!age) throw CLI::ValidationError("--since", age.error().message);
  return std::chrono::system_clock::now() - std::min(*age, longest_time);
}

events::Head head_of(const std::string& text) {
  events::Head head;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), head.sequence);
  bool hexadecimal = false;
  if (error == std::errc() && *end == ':') {
    head.hash = end + 1;
    hexadecimal =
        head.hash.size() == 64 && head.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  }
  if (!hexadecimal || head.sequence < 1)
    throw CLI::ValidationError("--head", fmt::format("is NUMBER:HASH as verify prints it, not '{}'", text));
  return head;
}

void add_filter(CLI::App* command, events::Filter& filter) {
  command->add_option("--session", filter.session, "Only of this session")->type_name("ID");
  command->add_option("--task", filter.task, "Only of this task")->type_name("ID");
  command->add_option("--name", filter.name_prefix, "Only names that begin so, such as anchorhold.vm")
      ->type_name("NAME");
  command
      ->add_option_function<std::string>(
          "--severity", [&filter](const std::string& text) { filter.at_least = severity_of(text); },
          "At least this grave: info, warn or error")
      ->type_name("SEVERITY");
  command
      ->add_option_function<std::string>(
          "--since", [&filter](const std::string& text) { filter.since = time_before_now(text); },
          "Not older than this, such as 2h")
      ->type_name("TIME");
  command->add_option("--after", filter.after, "Only after this sequence number")->type_name("N");
  command->add_option("--limit", filter.newest, "Only the newest N")->type_name("N");
}

}  // namespace

void add_events_command(CLI::App& app, EventsCommand& into, bool& json) {
  auto* command = app.add_subcommand("events", "The record of what was allowed, refused, started and ended");
  command->require_subcommand(0, 1);
  add_json(command, json);
  using Action = EventsCommand::Action;
  add_filter(add_action(command, "list", "Events of the log, oldest first", json, into, Action::list),
             into.filter);
  add_filter(add_action(command, "follow", "Events as they are written", json, into, Action::follow),
             into.filter);
  add_action(command, "verify", "Check that nothing in the log was changed, removed or moved", json, into,
             Action::verify)
      ->add_option_function<std::string>(
          "--head", [&into](const std::string& text) { into.head = head_of(text); },
          "A head that an earlier verification printed: it must still be in the log")
      ->type_name("N:HASH");
}

}  // namespace anchorhold::cli
