#include "cli/program.h"

#include "base/log.h"
#include "cli/arguments.h"
#include "commands.h"

namespace anchorhold::cli {
namespace {

struct Dispatch {
  Console& console;
  Signals& signals;
  Result<int> operator()(const RunCommand& command) { return run_command(command, console, signals); }
  Result<int> operator()(const TaskCommand& command) { return run_task_command(command, console, signals); }
  Result<int> operator()(const SessionsCommand& command) {
    return run_sessions_command(command, console, signals);
  }
  Result<int> operator()(const ChangesCommand& command) { return run_changes_command(command, console); }
  Result<int> operator()(const UndoCommand& command) { return run_undo_command(command, console); }
  Result<int> operator()(const EventsCommand& command) {
    return run_events_command(command, console, signals);
  }
  Result<int> operator()(const EgressCommand& command) { return run_egress_command(command, console); }
  Result<int> operator()(const ImageCommand& command) { return run_image_command(command, console, signals); }
  Result<int> operator()(const CredentialCommand& command) {
    return run_credential_command(command, console);
  }
  Result<int> operator()(const DoctorCommand& command) {
    return run_doctor_command(command, console, signals);
  }
};

bool asks_for_json(const std::vector<std::string>& argv) {
  for (const auto& word : argv) {
    if (word == "--") return false;
    if (word == "--json") return true;
  }
  return false;
}

}  // namespace

int run_program(const std::vector<std::string>& argv) {
  Signals signals;
  auto parsed = parse_arguments(argv);
  if (!parsed) {
    Console console(asks_for_json(argv) ? Console::Form::json : Console::Form::text, false);
    console.error(parsed.error());
    return exit_status::own_failure;
  }
  if (auto* help = std::get_if<HelpText>(&*parsed)) {
    Console console(Console::Form::text, false);
    console.text(help->text);
    return console.broken() ? console.unsaid() : exit_status::ok;
  }
  const auto& arguments = std::get<Arguments>(*parsed);
  start_log("anchorhold", arguments.verbose ? LogLevel::debug : LogLevel::error);
  Console console(arguments.json ? Console::Form::json : Console::Form::text, arguments.verbose);
  Dispatch dispatch{console, signals};
  auto status = std::visit(dispatch, arguments.command);
  console.progress("");
  if (!status) {
    console.error(status.error());
    return exit_status::own_failure;
  }
  // What was not said is no success, whatever was done.
  if (*status == exit_status::ok && console.broken()) return console.unsaid();
  return *status;
}

}  // namespace anchorhold::cli
