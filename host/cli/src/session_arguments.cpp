#include "session_arguments.h"

#include "argument_parts.h"

namespace anchorhold::cli {

void add_sessions_command(CLI::App& app, SessionsCommand& into, bool& json) {
  auto* command = app.add_subcommand("sessions", "Commands and tasks, past and present");
  command->require_subcommand(0, 1);
  add_json(command, json);
  using Action = SessionsCommand::Action;
  add_action(command, "list", "All sessions, newest first", json, into, Action::list);
  auto with_id = [&](const char* name, Action action, const char* text) {
    auto* sub = add_action(command, name, text, json, into, action);
    add_session_id(sub, into.id);
    return sub;
  };
  with_id("show", Action::show, "One session: what was asked, allowed and done");
  auto* grant = with_id("grant", Action::grant, "Give a running session one more folder or file");
  add_grant_options(grant);
  with_id("stop", Action::stop, "End a session; a task can be resumed")
      ->add_flag("--force", into.force, "Kill its process when it does not end by itself");
  auto* resume = with_id("resume", Action::resume, "Go on with a task that was stopped or interrupted");
  resume->add_option("--model", into.model, "Another model: anthropic:NAME, openai:NAME or scripted:FILE")
      ->type_name("MODEL");
  resume->add_option("--max-turns", into.max_turns, "Most turns of the model, those before included")
      ->check(CLI::Range(1u, 100000u));
  resume->add_option("--max-time")
      ->type_name("TIME")
      ->expected(1)
      ->description("Longest time the task may run, what it ran before included")
      ->check(limit_validator(into.max_time));
  resume->add_flag("--wait-for-answers", into.wait_for_answers, wait_for_answers_text);
  resume->add_option("--base-url", into.base_url, "Where the model is served now")->type_name("URL");
  resume->add_option("--key-file", into.key_file, "A file that holds the key of the model")
      ->type_name("FILE");
  with_id("rm", Action::remove, "Forget a session and what its tools printed")
      ->add_flag("--forget-undo", into.forget_undo,
                 "Also when it changed something: it cannot be undone after that");
}

Status finish_sessions(const CLI::App& app, SessionsCommand& into) {
  if (into.action == SessionsCommand::Action::resume) return check_model(into.model, deepest(&app));
  if (into.action != SessionsCommand::Action::grant) return {};
  const auto* command = deepest(&app);
  collect_grants(command, into.grants);
  if (into.grants.empty())
    return usage_error("sessions grant needs a folder or a file: --ro PATH, --rw PATH or --rw-no-delete PATH",
                       command);
  return {};
}

}  // namespace anchorhold::cli
