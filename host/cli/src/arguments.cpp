#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>

#include "answer_words.h"
#include "credential_arguments.h"
#include "policy/configuration.h"

namespace anchorhold::cli {
namespace {

struct GrantOption {
  const char* name;
  mounts::Mode mode;
  const char* text;
};
constexpr std::array grant_options{
    GrantOption{"--ro", mounts::Mode::ro, "A folder or file to read, at /mnt/NAME in the guest"},
    GrantOption{"--rw", mounts::Mode::rw, "A folder or file to read and change"},
    GrantOption{"--rw-no-delete", mounts::Mode::rw_no_delete,
                "The same, but nothing that is there already can be removed or renamed"}};

constexpr const char* wait_for_answers_text =
    "Ask also without a terminal; to be answered with: anchorhold egress answer";
constexpr const char* version_text = "anchorhold " ANCHORHOLD_VERSION "\n";

CLI::Validator duration_validator(std::optional<std::chrono::milliseconds>& into) {
  return CLI::Validator(
      [&into](std::string& text) {
        auto parsed = parse_duration(text);
        if (parsed) into = *parsed;
        return parsed ? std::string() : parsed.error().message;
      },
      "");
}

class Parser {
 public:
  Parser();
  Result<std::variant<Arguments, HelpText>> parse(const std::vector<std::string>& argv);

 private:
  static void add_rule_option(CLI::App* command, const char* name, policy::EgressAction action,
                              GuestArguments& into, const char* text);
  void add_run();
  void add_task();
  void add_sessions();
  void add_changes();
  void add_undo();
  void add_events();
  void add_egress();
  void add_image();
  void add_doctor();
  void add_guest_options(CLI::App* command, GuestArguments& into);
  CLI::App* add_action(CLI::App* parent, const char* name, const char* text);
  void add_json(CLI::App* command) {
    command->add_flag("--json", json_, "One JSON object per line on standard output");
  }
  static void add_grant_options(CLI::App* command);
  static void collect_grants(const CLI::App* command, std::vector<GrantArgument>& into);
  Status finish();
  Status finish_run();
  Status finish_task();
  Status finish_sessions();
  Status finish_events();

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
  std::string severity_ = "info", since_, head_;
};

Parser::Parser() {
  app_.name("anchorhold");
  app_.require_subcommand(1);
  app_.set_version_flag("--version", version_text);
  app_.add_flag("-v,--verbose", verbose_, "Say more on standard error");
  app_.fallthrough();
  add_run();
  add_task();
  add_sessions();
  add_changes();
  add_undo();
  add_events();
  add_egress();
  add_image();
  add_doctor();
  add_credential_command(app_, credential_, json_);
}

void Parser::add_grant_options(CLI::App* command) {
  // Read again in collect_grants(), where their order is known.
  for (const auto& [name, mode, text] : grant_options)
    command->add_option(name, "")
        ->type_name("PATH")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->description(text);
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

// CLI11 keeps the values of each option apart; the order of a clash ("-2") is the order on the command line.
void Parser::collect_grants(const CLI::App* command, std::vector<GrantArgument>& into) {
  std::array<std::size_t, grant_options.size()> next{};
  for (const CLI::Option* option : command->parse_order())
    for (std::size_t kind = 0; kind < grant_options.size(); ++kind)
      if (option->check_name(grant_options[kind].name) && next[kind] < option->results().size())
        into.push_back({option->results()[next[kind]++], grant_options[kind].mode});
}

void Parser::add_run() {
  auto* command = app_.add_subcommand("run", "Run one command in a fresh guest");
  command->footer("The command follows after --: anchorhold run [OPTIONS] -- COMMAND [ARG]...");
  add_guest_options(command, run_.guest);
  command->add_option("--timeout")
      ->type_name("TIME")
      ->expected(1)
      ->description("End the command after this time (exit status 124), such as 90s or 5m")
      ->check(duration_validator(run_.timeout));
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
      ->check(duration_validator(task_.max_time));
  add_json(command);
}

CLI::App* Parser::add_action(CLI::App* parent, const char* name, const char* text) {
  auto* action = parent->add_subcommand(name, text);
  add_json(action);
  return action;
}

void Parser::add_sessions() {
  auto* command = app_.add_subcommand("sessions", "Commands and tasks, past and present");
  command->require_subcommand(0, 1);
  add_json(command);
  using Action = SessionsCommand::Action;
  add_action(command, "list", "All sessions, newest first")->callback([this] {
    sessions_.action = Action::list;
  });
  auto with_id = [&](const char* name, Action action, const char* text) {
    auto* sub = add_action(command, name, text);
    sub->add_option("id", sessions_.id, "The session, or the beginning of its id")
        ->required()
        ->type_name("ID");
    sub->callback([this, action] { sessions_.action = action; });
    return sub;
  };
  with_id("show", Action::show, "One session: what was asked, allowed and done");
  auto* grant = with_id("grant", Action::grant, "Give a running session one more folder or file");
  add_grant_options(grant);
  with_id("stop", Action::stop, "End a session; a task can be resumed")
      ->add_flag("--force", sessions_.force, "Kill its process when it does not end by itself");
  auto* resume = with_id("resume", Action::resume, "Go on with a task that was stopped or interrupted");
  resume
      ->add_option("--model", sessions_.model, "Another model: anthropic:NAME, openai:NAME or scripted:FILE")
      ->type_name("MODEL");
  resume->add_option("--max-turns", sessions_.max_turns, "Most turns of the model, those before included")
      ->check(CLI::Range(1u, 100000u));
  resume->add_option("--max-time")
      ->type_name("TIME")
      ->expected(1)
      ->description("Longest time the task may run, what it ran before included")
      ->check(duration_validator(sessions_.max_time));
  resume->add_flag("--wait-for-answers", sessions_.wait_for_answers, wait_for_answers_text);
  resume->add_option("--base-url", sessions_.base_url, "Where the model is served now")->type_name("URL");
  resume->add_option("--key-file", sessions_.key_file, "A file that holds the key of the model")
      ->type_name("FILE");
  with_id("rm", Action::remove, "Forget a session and what its tools printed")
      ->add_flag("--forget-undo", sessions_.forget_undo,
                 "Also when it changed something: it cannot be undone after that");
}

void Parser::add_changes() {
  auto* command = app_.add_subcommand("changes", "What a session changed in the folders it was granted");
  command->add_option("id", changes_.id, "The session, or the beginning of its id")
      ->required()
      ->type_name("ID");
  command->add_option("path", changes_.paths, "Only this, and what is beneath it")->type_name("PATH");
  command->add_flag("--diff", changes_.diff, "Show how texts differ from what they were");
  add_json(command);
}

void Parser::add_undo() {
  auto* command =
      app_.add_subcommand("undo", "Make the folders a session was granted as they were before it");
  command->add_option("id", undo_.id, "The session, or the beginning of its id")->required()->type_name("ID");
  command->add_option("path", undo_.paths, "Only this, and what is beneath it")->type_name("PATH");
  command->add_flag("--dry-run", undo_.dry_run, "Only say what would be done");
  command->add_flag("--force", undo_.force, "Also undo what was changed by somebody else since");
  command->add_flag("--redo", undo_.redo, "Take the latest undo back");
  add_json(command);
}

void Parser::add_events() {
  auto* command = app_.add_subcommand("events", "The record of what was allowed, refused, started and ended");
  command->require_subcommand(0, 1);
  add_json(command);
  using Action = EventsCommand::Action;
  auto* list = add_action(command, "list", "Events of the log, oldest first");
  list->callback([this] { events_.action = Action::list; });
  auto* follow = add_action(command, "follow", "Events as they are written");
  follow->callback([this] { events_.action = Action::follow; });
  for (auto* sub : {list, follow}) {
    sub->add_option("--session", events_.filter.session, "Only of this session")->type_name("ID");
    sub->add_option("--task", events_.filter.task, "Only of this task")->type_name("ID");
    sub->add_option("--name", events_.filter.name_prefix, "Only names that begin so, such as anchorhold.vm")
        ->type_name("NAME");
    sub->add_option("--severity", severity_, "At least this grave")
        ->check(CLI::IsMember({"info", "warn", "error"}));
    sub->add_option("--since", since_, "Not older than this, such as 2h")->type_name("TIME");
    sub->add_option("--after", events_.filter.after, "Only after this sequence number")->type_name("N");
    sub->add_option("--limit", events_.filter.newest, "Only the newest N")->type_name("N");
  }
  auto* verify = add_action(command, "verify", "Check that nothing in the log was changed, removed or moved");
  verify->callback([this] { events_.action = Action::verify; });
  verify
      ->add_option("--head", head_,
                   "A head that an earlier verification printed: it must still be in the log")
      ->type_name("N:HASH");
}

void Parser::add_egress() {
  auto* command =
      app_.add_subcommand("egress", "What may be reached on the network, and what is asked about it");
  command->require_subcommand(1);
  using Action = EgressCommand::Action;
  auto action = [&](const char* name, Action what, const char* text) {
    auto* sub = add_action(command, name, text);
    sub->callback([this, what] { egress_.action = what; });
    return sub;
  };
  auto* explain =
      action("explain", Action::explain, "Say what the rules decide about a destination, and which one");
  explain->add_option("host", egress_.query.target, "As a program would name it; without a port, 443")
      ->required()
      ->type_name("HOST[:PORT]");
  explain->add_option("--method", egress_.query.method, "And a request with this method")
      ->type_name("METHOD");
  explain->add_option("--path", egress_.query.path, "And a request for this path")->type_name("PATH");
  explain->add_flag("--resolve", egress_.resolve, "Also look up its addresses and judge them");
  explain->footer("Exit status: 0 allowed, 1 denied, 2 a person is asked.");
  auto* rules = action("rules", Action::rules, "The rules in force, and where each comes from");
  for (auto* sub : {explain, rules})
    sub->add_option("--session", egress_.session, "What this session may reach, not a new one")
        ->type_name("ID");
  action("pending", Action::pending, "The questions of all running sessions that wait for an answer");
  auto* answer = action("answer", Action::answer, "Answer a question");
  answer->add_option("question", egress_.question, "As pending shows it")->required()->type_name("QUESTION");
  answer
      ->add_option_function<std::string>(
          "answer",
          [this](const std::string& word) {
            auto given = answer_of_word(word);
            if (!given) throw CLI::ValidationError("answer", "is once, session, always, never or deny");
            egress_.answer = *given;
          },
          "once, session, always, never or deny")
      ->required()
      ->type_name("ANSWER");
  auto* forget = action("forget", Action::forget, "Forget what was answered always or never");
  forget->add_option("rule", egress_.rule, "HOST, HOST:PORT or answers.toml:LINE, as rules shows them")
      ->required()
      ->type_name("RULE");
}

void Parser::add_image() {
  auto* command = app_.add_subcommand("image", "Guest images: kernel and root file system");
  command->require_subcommand(0, 1);
  add_json(command);
  using Action = ImageCommand::Action;
  auto named = [&](const char* name, Action action, const char* text, bool required) {
    auto* sub = add_action(command, name, text);
    auto* option = sub->add_option("name", image_.name, "The image")->type_name("NAME");
    if (required) option->required();
    sub->callback([this, action] { image_.action = action; });
    return sub;
  };
  add_action(command, "list", "All images")->callback([this] { image_.action = Action::list; });
  named("build", Action::build, "Build an image from its recipe, or what of it is not there yet", false)
      ->add_flag("--refresh", image_.refresh, "Take the newest packages even when nothing here changed");
  named("verify", Action::verify, "Check signature and every byte of an image", false);
  named("rm", Action::remove, "Forget an image", true);
  add_action(command, "gc", "Remove what no image uses")->callback([this] {
    image_.action = Action::collect_garbage;
  });
}

void Parser::add_doctor() {
  auto* command = app_.add_subcommand("doctor", "Find out what this computer lacks for running guests");
  command->add_option("--image", doctor_.guest.image, "The guest image to start")->capture_default_str();
  command
      ->add_option("--hypervisor", doctor_.guest.hypervisor_uri, "Another libvirt URI than the embedded one")
      ->type_name("URI");
  command->add_flag("--emulate", doctor_.guest.emulate, "Do not use KVM even where it works");
  add_json(command);
}

tl::unexpected<Error> usage_error(std::string message, const CLI::App* command) {
  std::string name = command && command->get_parent() ? command->get_name() : std::string();
  for (auto* parent = command ? command->get_parent() : nullptr; parent && parent->get_parent();
       parent = parent->get_parent())
    name = parent->get_name() + " " + name;
  return fail(ErrorCode::invalid_argument, std::move(message),
              name.empty() ? "see: anchorhold --help" : fmt::format("see: anchorhold {} --help", name));
}

const CLI::App* deepest(const CLI::App* app) {
  auto chosen = app->get_subcommands();
  return chosen.empty() ? app : deepest(chosen.front());
}

Status check_model(const std::string& model, const CLI::App* command) {
  if (model.empty()) return {};
  std::size_t colon = model.find(':');
  std::string kind = model.substr(0, colon);
  if ((kind == "anthropic" || kind == "openai" || kind == "scripted") && colon != std::string::npos &&
      colon + 1 < model.size())
    return {};
  return usage_error(fmt::format("--model is anthropic:NAME, openai:NAME or scripted:FILE, not '{}'", model),
                     command);
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

Status Parser::finish_sessions() {
  if (sessions_.action == SessionsCommand::Action::resume)
    return check_model(sessions_.model, deepest(&app_));
  if (sessions_.action != SessionsCommand::Action::grant) return {};
  const auto* command = deepest(&app_);
  collect_grants(command, sessions_.grants);
  if (sessions_.grants.empty())
    return usage_error("sessions grant needs a folder or a file: --ro PATH, --rw PATH or --rw-no-delete PATH",
                       command);
  return {};
}

Result<events::Head> parse_head(const std::string& text) {
  events::Head head;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), head.sequence);
  bool hexadecimal = false;
  if (error == std::errc() && *end == ':') {
    head.hash = end + 1;
    hexadecimal =
        head.hash.size() == 64 && head.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  }
  if (!hexadecimal || head.sequence < 1)
    return fail(ErrorCode::invalid_argument,
                fmt::format("--head is NUMBER:HASH as verify prints it, not '{}'", text));
  return head;
}

Status Parser::finish_events() {
  auto* command = app_.get_subcommand("events");
  events_.filter.at_least = severity_ == "error"  ? events::Severity::error
                            : severity_ == "warn" ? events::Severity::warn
                                                  : events::Severity::info;
  if (!since_.empty()) {
    auto age = parse_duration(since_);
    if (!age) return usage_error("--since: " + age.error().message, command);
    events_.filter.since = std::chrono::system_clock::now() - *age;
  }
  if (!head_.empty()) {
    auto head = parse_head(head_);
    if (!head) return usage_error(head.error().message, command);
    events_.head = *head;
  }
  return {};
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
    app_.parse(std::vector<std::string>(std::make_reverse_iterator(dashes), argv.rend()));
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
    ANCHORHOLD_CHECK(finish_sessions());
    arguments.command = sessions_;
  } else if (app_.got_subcommand("changes")) {
    arguments.command = changes_;
  } else if (app_.got_subcommand("undo")) {
    arguments.command = undo_;
  } else if (app_.got_subcommand("events")) {
    ANCHORHOLD_CHECK(finish_events());
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
