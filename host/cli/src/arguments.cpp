#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>

#include "argument_parts.h"
#include "credential_arguments.h"
#include "egress_arguments.h"
#include "event_arguments.h"
#include "hypervisor/memory.h"
#include "policy/configuration.h"
#include "session_arguments.h"

namespace anchorhold::cli {
namespace {

constexpr const char* version_text = "anchorhold " ANCHORHOLD_VERSION "\n";

class Parser {
 public:
  Parser();
  Result<std::variant<Arguments, HelpText>> parse(const std::vector<std::string>& argv);

 private:
  static void add_rule_option(CLI::App* command, const char* name, policy::EgressAction action,
                              GuestArguments& into, const char* text);
  void add_run();
  void add_task();
  void add_changes();
  void add_undo();
  void add_image();
  void add_doctor();
  void add_guest_options(CLI::App* command, GuestArguments& into);
  Status finish_run();
  Status finish_task();

  CLI::App app_{"Runs agent tasks and commands in a sealed virtual machine."};
  bool json_ = false;
  bool verbose_ = false;
  RunCommand run_;
  TaskCommand task_;
  SessionsCommand sessions_;
  ChangesCommand changes_;
  UndoCommand undo_;
  EventsCommand events_;
  EgressCommand egress_;
  ImageCommand image_;
  DoctorCommand doctor_;
  CredentialCommand credential_;
  std::vector<std::string> environment_;
};

Parser::Parser() {
  app_.name("anchorhold");
  app_.require_subcommand(1);
  app_.set_version_flag("--version", version_text);
  app_.add_flag("-v,--verbose", verbose_, "Say more on standard error");
  app_.fallthrough();
  add_run();
  add_task();
  add_sessions_command(app_, sessions_, json_);
  add_changes();
  add_undo();
  add_events_command(app_, events_, json_);
  add_egress_command(app_, egress_, json_);
  add_image();
  add_doctor();
  add_credential_command(app_, credential_, json_);
}

void Parser::add_guest_options(CLI::App* command, GuestArguments& into) {
  add_grant_options(command);
  command->add_option("--image", into.image, "The guest image")->capture_default_str();
  command->add_option("--cpus", into.cpus, "Processors of the guest")->check(CLI::Range(1u, 64u));
  command
      ->add_option_function<std::string>(
          "--memory",
          [&into](const std::string& text) {
            auto size = parse_size(text);
            if (!size) throw CLI::ValidationError("--memory", size.error().message);
            if (auto good = hypervisor::validate_memory(*size); !good)
              throw CLI::ValidationError("--memory", good.error().message);
            into.memory = *size;
          },
          "Memory of the guest, such as 512M or 4G")
      ->type_name("SIZE");
  command->add_option("--hypervisor", into.hypervisor_uri, "Another libvirt URI than the embedded one")
      ->type_name("URI");
  command
      ->add_option("--bulk-limit", into.bulk_limit,
                   "Removals and rewrites of old files in a minute before you are asked (200; 0: never ask)")
      ->type_name("N");
  command
      ->add_option_function<std::string>(
          "--write-limit",
          [&into](const std::string& text) {
            auto size = parse_size(text);
            if (!size || size->bytes == 0)
              throw CLI::ValidationError("--write-limit",
                                         size ? "must be more than 0" : size.error().message);
            into.write_limit = *size;
          },
          "Most bytes to write in each granted folder, such as 2G (256G)")
      ->type_name("SIZE");
  command
      ->add_option("--file-limit", into.file_limit,
                   "Most files and folders to make in each granted folder (1000000)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 48))
      ->type_name("N");
  command->add_flag("--refuse-escaping-symlinks", into.refuse_escaping_symlinks,
                    "Refuse symlinks that lead out of their granted folder, instead of only recording them");
  add_rule_option(command, "--allow", policy::EgressAction::allow, into, "Let it reach this on the network");
  add_rule_option(command, "--deny", policy::EgressAction::deny, into,
                  "Never let it reach this, whatever else allows it");
  command->add_flag("--wait-for-answers", into.wait_for_answers, wait_for_answers_text);
  add_credential_option(*command, into);
  command->add_flag("--emulate", into.emulate, "Do not use KVM even where it works");
}

void Parser::add_rule_option(CLI::App* command, const char* name, policy::EgressAction action,
                             GuestArguments& into, const char* text) {
  command
      ->add_option_function<std::vector<std::string>>(
          name,
          [&into, name, action](const std::vector<std::string>& hosts) {
            for (const auto& host : hosts) {
              auto rule = policy::parse_rule_argument(host, action);
              if (!rule) throw CLI::ValidationError(name, rule.error().message);
              into.network.push_back(std::move(*rule));
            }
          },
          text)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("HOST[:PORT]");
}

void Parser::add_run() {
  auto* command = app_.add_subcommand("run", "Run one command in a fresh guest");
  command->footer("The command follows after --: anchorhold run [OPTIONS] -- COMMAND [ARG]...");
  add_guest_options(command, run_.guest);
  command->add_option("--timeout")
      ->type_name("TIME")
      ->expected(1)
      ->description("End the command after this time (exit status 124), such as 90s or 5m")
      ->check(limit_validator(run_.timeout));
  command->add_option("--env", environment_, "A variable for the command")
      ->type_name("K=V")
      ->allow_extra_args(false);
  command->add_option("--cwd", run_.working_directory, "Where the command starts, a path in the guest")
      ->type_name("DIR");
  command->add_option("--user", run_.user, "Who the command runs as in the guest; root must be asked for")
      ->type_name("NAME");
  command->add_flag("--tty", run_.tty, "Give the command a terminal");
}

void Parser::add_task() {
  auto* command = app_.add_subcommand("task", "Give an agent a wish and let it work in a guest");
  add_guest_options(command, task_.guest);
  auto* prompt = command->add_option("prompt", task_.prompt, "What is wished for");
  command->add_option("--file", task_.prompt_file, "Read the wish from this file")
      ->excludes(prompt)
      ->type_name("FILE");
  command->add_option("--model", task_.model, "anthropic:NAME, openai:NAME or scripted:FILE")
      ->type_name("MODEL");
  command
      ->add_option("--base-url", task_.base_url,
                   "Where the model is served, such as http://127.0.0.1:11434/v1")
      ->type_name("URL");
  command->add_option("--key-file", task_.key_file, "A file that holds the key of the model")
      ->type_name("FILE");
  command->add_option("--max-turns", task_.max_turns, "Most turns of the model")
      ->check(CLI::Range(1u, 100000u));
  command->add_option("--max-time")
      ->type_name("TIME")
      ->expected(1)
      ->description("Longest time the task may run, such as 30m")
      ->check(limit_validator(task_.max_time));
  add_json(command, json_);
}

void Parser::add_changes() {
  auto* command = app_.add_subcommand("changes", "What a session changed in the folders it was granted");
  add_session_id(command, changes_.id);
  command->add_option("path", changes_.paths, "Only this, and what is beneath it")->type_name("PATH");
  command->add_flag("--diff", changes_.diff, "Show how texts differ from what they were");
  add_json(command, json_);
}

void Parser::add_undo() {
  auto* command =
      app_.add_subcommand("undo", "Make the folders a session was granted as they were before it");
  add_session_id(command, undo_.id);
  command->add_option("path", undo_.paths, "Only this, and what is beneath it")->type_name("PATH");
  command->add_flag("--dry-run", undo_.dry_run, "Only say what would be done");
  command->add_flag("--force", undo_.force, "Also undo what was changed by somebody else since");
  command->add_flag("--redo", undo_.redo, "Take the latest undo back");
  add_json(command, json_);
}

void Parser::add_image() {
  auto* command = app_.add_subcommand("image", "Guest images: kernel and root file system");
  command->require_subcommand(0, 1);
  add_json(command, json_);
  using Action = ImageCommand::Action;
  auto named = [&](const char* name, Action action, const char* text, bool required) {
    auto* sub = add_action(command, name, text, json_, image_, action);
    auto* option = sub->add_option("name", image_.name, "The image")->type_name("NAME");
    if (required) option->required();
    return sub;
  };
  add_action(command, "list", "All images", json_, image_, Action::list);
  named("build", Action::build, "Build an image from its recipe, or what of it is not there yet", false)
      ->add_flag("--refresh", image_.refresh, "Take the newest packages even when nothing here changed");
  named("verify", Action::verify, "Check signature and every byte of an image", false);
  named("rm", Action::remove, "Forget an image", true);
  add_action(command, "gc", "Remove what no image uses", json_, image_, Action::collect_garbage);
}

void Parser::add_doctor() {
  auto* command = app_.add_subcommand("doctor", "Find out what this computer lacks for running guests");
  command->add_option("--image", doctor_.guest.image, "The guest image to start")->capture_default_str();
  command
      ->add_option("--hypervisor", doctor_.guest.hypervisor_uri, "Another libvirt URI than the embedded one")
      ->type_name("URI");
  command->add_flag("--emulate", doctor_.guest.emulate, "Do not use KVM even where it works");
  add_json(command, json_);
}

Status Parser::finish_run() {
  auto* command = app_.get_subcommand("run");
  collect_grants(command, run_.guest.grants);
  if (run_.argv.empty() || run_.argv.front().empty())
    return usage_error("run needs a command after --: anchorhold run [OPTIONS] -- COMMAND [ARG]...", command);
  for (const auto& entry : environment_) {
    std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0)
      return usage_error(fmt::format("--env needs NAME=VALUE, not '{}'", entry), command);
    run_.environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return {};
}

Status Parser::finish_task() {
  auto* command = app_.get_subcommand("task");
  collect_grants(command, task_.guest.grants);
  if (task_.prompt.empty() && task_.prompt_file.empty() && !task_.model.starts_with("scripted:"))
    return usage_error("task needs a wish: anchorhold task \"...\", or --file FILE", command);
  return check_model(task_.model, command);
}

Result<std::variant<Arguments, HelpText>> Parser::parse(const std::vector<std::string>& argv) {
  auto word =
      std::find_if(argv.begin(), argv.end(), [](const std::string& each) { return !each.starts_with("-"); });
  auto named = [&](CLI::App* command) { return command->get_name() == *word; };
  if (word != argv.end() && app_.get_subcommands(named).empty())
    return usage_error(fmt::format("there is no command '{}'", *word), nullptr);
  // What follows "--" is the guest's command and none of our options, whatever it looks like.
  auto dashes = std::find(argv.begin(), argv.end(), "--");
  if (dashes != argv.end()) run_.argv.assign(dashes + 1, argv.end());
  try {
    auto words = with_empty_values(argv.begin(), dashes);
    app_.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return HelpText{deepest(&app_)->help()};
  } catch (const CLI::CallForAllHelp&) {
    return HelpText{app_.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion&) {
    return HelpText{version_text};
  } catch (const CLI::Error& error) {
    std::string message = error.what();
    while (!message.empty() && message.back() == '\n') message.pop_back();
    return usage_error(std::move(message), deepest(&app_));
  }
  ANCHORHOLD_CHECK(refuse_empty(deepest(&app_)));
  Arguments arguments;
  arguments.json = json_;
  arguments.verbose = verbose_;
  if (app_.got_subcommand("run")) {
    ANCHORHOLD_CHECK(finish_run());
    arguments.command = run_;
  } else if (dashes != argv.end()) {
    return usage_error("only run takes a command after --", deepest(&app_));
  } else if (app_.got_subcommand("task")) {
    ANCHORHOLD_CHECK(finish_task());
    arguments.command = task_;
  } else if (app_.got_subcommand("sessions")) {
    ANCHORHOLD_CHECK(finish_sessions(app_, sessions_));
    arguments.command = sessions_;
  } else if (app_.got_subcommand("changes")) {
    arguments.command = changes_;
  } else if (app_.got_subcommand("undo")) {
    arguments.command = undo_;
  } else if (app_.got_subcommand("events")) {
    arguments.command = events_;
  } else if (app_.got_subcommand("egress")) {
    arguments.command = egress_;
  } else if (app_.got_subcommand("credential")) {
    arguments.command = credential_;
  } else if (app_.got_subcommand("image")) {
    arguments.command = image_;
  } else {
    arguments.command = doctor_;
  }
  return arguments;
}

}  // namespace

Result<std::variant<Arguments, HelpText>> parse_arguments(const std::vector<std::string>& argv) {
  Parser parser;
  return parser.parse(argv);
}

}  // namespace anchorhold::cli
