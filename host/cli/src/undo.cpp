// anchorhold undo: a session's granted folders as they were before it; and its own inverse, --redo.
#include <fmt/format.h>

#include "commands.h"
#include "events/event_log.h"
#include "ledgers.h"

namespace anchorhold::cli {
namespace {

using mounts::UndoStep;

std::string_view words_for(UndoStep::Kind kind, bool would) {
  switch (kind) {
    case UndoStep::Kind::removed:
      return would ? "would remove" : "removed";
    case UndoStep::Kind::put_back:
      return would ? "would put back" : "put back";
    case UndoStep::Kind::moved_back:
      return would ? "would move back" : "moved back";
    case UndoStep::Kind::linked:
      return would ? "would link again" : "linked again";
    case UndoStep::Kind::content:
      return would ? "would restore" : "restored";
    case UndoStep::Kind::attributes:
      return would ? "would restore mode and times of" : "restored mode and times of";
    case UndoStep::Kind::left_in_place:
      break;
  }
  return "left in place, it holds what the session did not make:";
}

// Said before it is done; when it cannot be recorded, it is not done.
Status record_begin(events::EventSink& log, const Ledgers& ledgers, const Chosen& chosen,
                    const UndoCommand& command) {
  events::Event event(events::mount_undo);
  event.set(ledgers.session.id)
      .set("mount.name", chosen.place->name)
      .set("undo.redo", command.redo)
      .set("undo.force", command.force)
      .set_content(events::ContentCategory::paths, "mount.host_path", chosen.place->host_path.string());
  if (!chosen.paths.empty()) event.set_content(events::ContentCategory::paths, "undo.paths", chosen.paths);
  return log.record(std::move(event));
}

Status record_end(events::EventSink& log, const Ledgers& ledgers, const Chosen& chosen,
                  const Result<mounts::UndoOutcome>& outcome) {
  events::Event event(events::mount_undone);
  event.set(ledgers.session.id).set("mount.name", chosen.place->name);
  if (outcome)
    event.set("undo.number", outcome->number)
        .set("undo.steps", static_cast<std::uint64_t>(outcome->steps.size()))
        .set("undo.refused", static_cast<std::uint64_t>(outcome->refused.size()));
  else
    event.set(events::key::cause, outcome.error().message).set_severity(events::Severity::error);
  return log.record(std::move(event));
}

void tell(const mounts::LedgerPlace& place, const mounts::UndoOutcome& outcome, bool dry_run,
          Console& console) {
  console.line(fmt::format("{}:", shown_path(place.host_path.string())));
  for (const auto& step : outcome.steps) {
    Json object{{"type", "step"}, {"grant", place.name}, {"kind", mounts::to_string(step.kind)}};
    put_path(object, "path", step.path);
    if (!step.from.empty()) put_path(object, "from", step.from);
    console.object(object);
    console.line(fmt::format("  {} {}{}", words_for(step.kind, dry_run), shown_path(step.path),
                             step.from.empty() ? "" : fmt::format(" (from {})", shown_path(step.from))));
  }
  for (const auto& refusal : outcome.refused) {
    Json object{{"type", "refused"}, {"grant", place.name}, {"reason", refusal.reason}};
    put_path(object, "path", refusal.path);
    console.object(object);
    console.line(
        fmt::format("  not undone: {} ({})", shown_path(refusal.path), one_line(refusal.reason, 300)));
  }
  if (outcome.steps.empty() && outcome.refused.empty()) console.line("  nothing to do");
  console.object(Json{{"type", dry_run ? "would_undo" : "undone"},
                      {"grant", place.name},
                      {"number", outcome.number},
                      {"steps", outcome.steps.size()},
                      {"refused", outcome.refused.size()}});
}

}  // namespace

Result<int> run_undo_command(const UndoCommand& command, Console& console) {
  auto ledgers = ANCHORHOLD_TRY(find_ledgers(command.id));
  if (ledgers.session.state == session::SessionState::running && !command.dry_run)
    return fail(ErrorCode::failed_precondition,
                fmt::format("session {} is running", ledgers.session.id.value()),
                fmt::format("stop it first: anchorhold sessions stop {}", ledgers.session.id.value()));
  auto folder = ANCHORHOLD_TRY(events::default_log_folder());
  auto log = ANCHORHOLD_TRY(events::EventLog::open({.folder = std::move(folder)}));
  std::size_t refused = 0, nothing_to_take_back = 0;
  auto all = ANCHORHOLD_TRY(choose_ledgers(ledgers, command.paths));
  for (const auto& chosen : all) {
    if (!command.dry_run) ANCHORHOLD_CHECK(record_begin(*log, ledgers, chosen, command));
    console.progress(fmt::format("{} {}", command.redo ? "redoing" : "undoing", chosen.place->name));
    auto outcome = mounts::undo(
        *chosen.place,
        {.redo = command.redo, .force = command.force, .dry_run = command.dry_run, .paths = chosen.paths});
    console.progress("");
    if (!command.dry_run) ANCHORHOLD_CHECK(record_end(*log, ledgers, chosen, outcome));
    // Of several folders, some may have no undo to take back.
    if (!outcome && command.redo && outcome.error().code == ErrorCode::not_found &&
        ++nothing_to_take_back < all.size())
      continue;
    if (!outcome)
      return fail(with_context(std::move(outcome).error(),
                               fmt::format("undoing in {}", chosen.place->host_path.string())));
    tell(*chosen.place, *outcome, command.dry_run, console);
    refused += outcome->refused.size();
  }
  if (ledgers.places.empty())
    console.note(
        fmt::format("session {} was granted nothing that it could change", ledgers.session.id.value()));
  if (refused > 0 && !command.force)
    console.note("what was changed since is left as it is; --force undoes it all the same");
  return refused > 0 ? exit_status::not_completed : exit_status::ok;
}

}  // namespace anchorhold::cli
