// anchorhold events: the log, listed, followed and verified.
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "commands.h"
#include "events/event_log.h"

namespace anchorhold::cli {
namespace {

Json to_json(const events::Value& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

Json to_json(const events::Record& record) {
  Json attributes = Json::object();
  for (const auto& [key, value] : record.attributes) attributes[key] = to_json(value);
  return Json{{"type", "event"},
              {"event.sequence", record.sequence},
              {"event.id", record.id},
              {"time", to_rfc3339(record.wall)},
              {"monotonic_ns", record.monotonic.count()},
              {"boot", record.boot},
              {"name", record.name},
              {"severity", events::to_string(record.severity)},
              {"attributes", attributes}};
}

std::string to_text(const events::Value& value) {
  if (auto* text = std::get_if<std::string>(&value)) return *text;
  return to_json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_line(const events::Record& record) {
  std::string line = fmt::format("{:>6}  {}  {:<5}  {}", record.sequence, to_rfc3339(record.wall),
                                 events::to_string(record.severity), record.name);
  for (const auto& [key, value] : record.attributes) {
    if (key == events::key::user_name) continue;
    line += fmt::format("  {}={}", key, one_line(to_text(value), 200));
  }
  return line;
}

Result<int> list_or_follow(const EventsCommand& command, Console& console, Signals& signals) {
  auto folder = ANCHORHOLD_TRY(events::default_log_folder());
  auto visit = [&](const events::Record& record) {
    if (console.json()) {
      console.object(to_json(record));
    } else {
      console.line(to_line(record));
    }
    return !console.broken();
  };
  if (command.action == EventsCommand::Action::list) {
    ANCHORHOLD_CHECK(events::list(folder, command.filter, visit));
    return exit_status::ok;
  }
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  signals.set_handler([&](int) {
    std::uint64_t one = 1;
    (void)!write(stop.get(), &one, sizeof one);
  });
  auto status = events::follow(folder, command.filter, visit, stop.get());
  signals.set_handler({});
  if (!status) return fail(std::move(status).error());
  return exit_status::ok;
}

Result<int> verify(const EventsCommand& command, Console& console) {
  auto folder = ANCHORHOLD_TRY(events::default_log_folder());
  auto result = ANCHORHOLD_TRY(events::verify(folder, command.head));
  for (const auto& finding : result.findings) {
    console.object(Json{{"type", "finding"},
                        {"kind", events::to_string(finding.kind)},
                        {"event.sequence", finding.sequence},
                        {"message", finding.message}});
    console.line(fmt::format("{}: {}", events::to_string(finding.kind), finding.message));
  }
  if (result.more_findings > 0) console.line(fmt::format("… and {} more", result.more_findings));
  const bool whole = result.findings.empty();
  console.object(Json{{"type", "verification"},
                      {"whole", whole},
                      {"records", result.records},
                      {"findings", result.findings.size() + result.more_findings},
                      {"pruned_through", result.pruned.sequence},
                      {"head", fmt::format("{}:{}", result.head.sequence, result.head.hash)}});
  if (whole) {
    console.line(fmt::format("{} events, none missing, altered or moved", result.records));
    if (result.pruned.sequence > 0)
      console.line(fmt::format("before them {} were removed by retention", result.pruned.sequence));
    if (result.records > 0) console.line(fmt::format("head: {}:{}", result.head.sequence, result.head.hash));
    return exit_status::ok;
  }
  console.error(
      {ErrorCode::data_loss, "the event log is not as it was written",
       fmt::format("keep a copy of {} for whoever looks into it; move that folder away to begin a new log",
                   folder.string())});
  return exit_status::not_completed;
}

}  // namespace

Result<int> run_events_command(const EventsCommand& command, Console& console, Signals& signals) {
  if (command.action == EventsCommand::Action::verify) return verify(command, console);
  return list_or_follow(command, console, signals);
}

}  // namespace anchorhold::cli
