// anchorhold sessions: what runs, what ran, and ending, resuming and forgetting it.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include "answer_words.h"
#include "base/paths.h"
#include "commands.h"
#include "ledgers.h"
#include "session/control.h"
#include "session/session_store.h"
#include "task.h"
#include "task_view.h"

namespace anchorhold::cli {
namespace {

using session::SessionKind;
using session::SessionRecord;
using session::SessionState;
using std::chrono::milliseconds;

// A command in the guest may handle the first signal; the second ends everything (see run and task).
constexpr milliseconds first_patience = std::chrono::seconds(10);
constexpr milliseconds second_patience = std::chrono::seconds(45);

Json rules_json(const std::vector<policy::EgressRule>& rules) {
  Json array = Json::array();
  for (const auto& rule : rules) array.push_back(to_json(rule));
  return array;
}

Json session_json(const SessionRecord& record) {
  return Json{{"type", "session"},
              {"id", record.id.value()},
              {"kind", session::to_string(record.kind)},
              {"state", session::to_string(record.state)},
              {"title", record.title},
              {"image", record.image},
              {"grants", record.grants},
              {"created", to_rfc3339(record.created)},
              {"changed", to_rfc3339(record.changed)},
              {"network", rules_json(record.network)},
              {"answers", rules_json(record.answers)},
              {"pid", record.owner.pid},
              {"end", record.end}};
}

Result<int> list(Console& console) {
  auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
  auto records = ANCHORHOLD_TRY(store.list());
  for (const auto& record : records) {
    console.object(session_json(record));
    console.line(fmt::format("{}  {:<4}  {:<11}  {}  {}", record.id.value(), session::to_string(record.kind),
                             session::to_string(record.state), to_rfc3339(record.created),
                             one_line(record.title, 80)));
  }
  if (records.empty()) console.note("there are no sessions");
  return exit_status::ok;
}

Status show_task(const TaskId& id, Json& object, Console& console) {
  auto store = ANCHORHOLD_TRY(open_task_store());
  auto summary = ANCHORHOLD_TRY(store.summary(id));
  Json outputs = Json::array();
  for (const auto& output : summary.outputs) outputs.push_back(to_json(output));
  object["task"] = Json{{"state", agent::to_string(summary.state)},
                        {"reason", summary.reason},
                        {"prompt", summary.prompt},
                        {"model", summary.model},
                        {"turns", summary.turns},
                        {"usage", to_json(summary.usage)},
                        {"outputs", outputs}};
  console.line(fmt::format("model     {}", one_line(summary.model, 200)));
  console.line(fmt::format("turns     {}", summary.turns));
  console.line(fmt::format("tokens    {} in, {} out", summary.usage.total() - summary.usage.output_tokens,
                           summary.usage.output_tokens));
  for (const auto& output : summary.outputs)
    console.line(fmt::format("output    {}", one_line(output.host_path, 1000)));
  SystemClock clock;
  auto task = store.open_task(id, clock);
  if (!task) return {};  // it runs: its steps are its process's to tell
  object["task"]["plan"] = to_json(ANCHORHOLD_TRY(task->plan()));
  Json calls = Json::array();
  for (const auto& stored : ANCHORHOLD_TRY(task->calls())) {
    bool done = stored.state == agent::StoredCall::State::done ||
                stored.state == agent::StoredCall::State::interrupted;
    calls.push_back(
        Json{{"number", stored.call.number},
             {"name", stored.call.name},
             {"summary", stored.call.summary},
             {"verdict", done ? agent::to_string(stored.outcome.verdict) : std::string_view("not run")},
             {"outcome", stored.outcome.summary}});
    console.line(fmt::format("{:>4}  {}  {}", stored.call.number, one_line(stored.call.summary, 100),
                             done ? one_line(stored.outcome.summary, 100) : "not run"));
  }
  object["task"]["calls"] = std::move(calls);
  return {};
}

Result<int> show(const SessionRecord& record, Console& console) {
  console.line(fmt::format("session   {}", record.id.value()));
  console.line(fmt::format("kind      {}", session::to_string(record.kind)));
  console.line(fmt::format("state     {}{}{}", session::to_string(record.state),
                           record.end.empty() ? "" : ", ", record.end));
  console.line(fmt::format("title     {}", record.title));
  console.line(fmt::format("begun     {}", to_rfc3339(record.created)));
  console.line(fmt::format("image     {}", record.image));
  for (const auto& grant : record.grants) console.line(fmt::format("grant     {}", grant));
  for (const auto* rules : {&record.network, &record.answers})
    for (const auto& rule : *rules)
      console.line(fmt::format("network   {}  {}", described(rule), rule.source));
  if (record.state == SessionState::running) console.line(fmt::format("process   {}", record.owner.pid));
  Json object = session_json(record);
  if (record.kind == SessionKind::task)
    ANCHORHOLD_CHECK(show_task(TaskId(record.id.value()), object, console));
  console.object(object);
  return exit_status::ok;
}

Result<int> grant(const SessionRecord& record, const std::vector<GrantArgument>& grants, Console& console) {
  auto client = ANCHORHOLD_TRY(session::ControlClient::connect(record.id));
  for (const auto& argument : grants) {
    auto granted = ANCHORHOLD_TRY(client.grant(argument.path, argument.mode));
    console.object(Json{{"type", "granted"},
                        {"id", record.id.value()},
                        {"mode", mounts::to_string(argument.mode)},
                        {"host_path", granted.host_path.string()},
                        {"guest_path", granted.guest_path}});
    console.line(fmt::format("session {}: {} {} → {}", record.id.value(), mounts::to_string(argument.mode),
                             one_line(granted.host_path.string(), 1000), one_line(granted.guest_path, 1000)));
  }
  return exit_status::ok;
}

bool wait_for_end(int pidfd, milliseconds limit) {
  pollfd waited{pidfd, POLLIN, 0};
  return poll(&waited, 1, static_cast<int>(limit.count())) > 0;
}

Result<int> stop(const SessionRecord& record, bool force, Console& console) {
  auto process = ANCHORHOLD_TRY(session::open_process(record.owner));
  if (record.state != SessionState::running || !process)
    return fail(ErrorCode::failed_precondition, fmt::format("session {} does not run", record.id.value()),
                "see which do: anchorhold sessions");
  const int pidfd = process->get();
  ANCHORHOLD_CHECK(session::signal_process(pidfd, SIGTERM));
  console.progress("waiting for it to end");
  bool ended = wait_for_end(pidfd, first_patience);
  if (!ended && record.kind == SessionKind::run) {
    ANCHORHOLD_CHECK(session::signal_process(pidfd, SIGTERM));
  }
  if (!ended) ended = wait_for_end(pidfd, second_patience);
  if (!ended && force) {
    ANCHORHOLD_CHECK(session::signal_process(pidfd, SIGKILL));
    ended = wait_for_end(pidfd, first_patience);
  }
  console.progress("");
  if (!ended)
    return fail(ErrorCode::deadline_exceeded, fmt::format("session {} has not ended yet", record.id.value()),
                fmt::format("end its process: anchorhold sessions stop --force {}", record.id.value()));
  console.object(Json{{"type", "stopped"}, {"id", record.id.value()}});
  console.line(fmt::format("session {}: stopped", record.id.value()));
  return exit_status::ok;
}

// What a session changed can be undone for as long as its ledgers are there: they go with it only when there
// is nothing to undo, or when that was said.
Status check_nothing_to_undo(const SessionRecord& record) {
  auto ledgers = ANCHORHOLD_TRY(find_ledgers(record.id.value()));
  const std::string hint = fmt::format(
      "look at it: anchorhold changes {0}; undo it: anchorhold undo {0}; or forget it for good: "
      "anchorhold sessions rm --forget-undo {0}",
      record.id.value());
  for (const auto& place : ledgers.places) {
    auto folder = one_line(place.host_path.string(), 1000);
    auto review = mounts::review(place, {});
    if (!review)
      return fail(
          ErrorCode::failed_precondition,
          fmt::format("session {} was given {}, and whether it changed something there cannot be seen: {}",
                      record.id.value(), folder, review.error().message),
          hint);
    if (auto changes = review->changes.size() + review->left_out; changes > 0)
      return fail(ErrorCode::failed_precondition,
                  fmt::format("session {} made {} {} in {} that could not be undone any more",
                              record.id.value(), changes, changes == 1 ? "change" : "changes", folder),
                  hint);
  }
  return {};
}

Result<int> remove(const SessionRecord& record, bool forget_undo, session::SessionStore& store,
                   Console& console) {
  if (record.state == SessionState::running)
    return fail(ErrorCode::failed_precondition, fmt::format("session {} is running", record.id.value()),
                fmt::format("stop it first: anchorhold sessions stop {}", record.id.value()));
  if (!forget_undo) ANCHORHOLD_CHECK(check_nothing_to_undo(record));
  if (record.kind == SessionKind::task) {
    auto removed = ANCHORHOLD_TRY(open_task_store()).remove(TaskId(record.id.value()));
    if (!removed && removed.error().code != ErrorCode::not_found) return fail(std::move(removed).error());
  }
  ANCHORHOLD_CHECK(mounts::forget_ledgers(ANCHORHOLD_TRY(state_directory()) / "ledgers" / record.id.value()));
  ANCHORHOLD_CHECK(store.remove(record.id));
  console.object(Json{{"type", "removed"}, {"id", record.id.value()}});
  console.line(fmt::format("session {}: forgotten", record.id.value()));
  return exit_status::ok;
}

}  // namespace

Result<int> run_sessions_command(const SessionsCommand& command, Console& console, Signals& signals) {
  using Action = SessionsCommand::Action;
  if (command.action == Action::list) return list(console);
  auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
  auto record = ANCHORHOLD_TRY(store.find(command.id));
  switch (command.action) {
    case Action::list:
      break;
    case Action::show:
      return show(record, console);
    case Action::grant:
      return grant(record, command.grants, console);
    case Action::stop:
      return stop(record, command.force, console);
    case Action::remove:
      return remove(record, command.forget_undo, store, console);
    case Action::resume:
      if (record.kind != SessionKind::task)
        return fail(ErrorCode::failed_precondition,
                    fmt::format("session {} was one command; only tasks can be resumed", record.id.value()),
                    "run the command again");
      return resume_task(TaskId(record.id.value()), command, console, signals);
  }
  return fail(ErrorCode::internal, "an unknown sessions command");
}

}  // namespace anchorhold::cli
