#include "task.h"

#include <atomic>
#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/keys.h"
#include "agent/provider.h"
#include "base/files.h"
#include "base/paths.h"
#include "commands.h"
#include "session/file_access.h"
#include "session/session_store.h"
#include "session/web_access.h"
#include "session/workspace.h"
#include "session_door.h"
#include "task_view.h"

namespace anchorhold::cli {
namespace {

constexpr std::size_t max_prompt_bytes = 1 << 20;

// What ends a task at its time limit needs a moment; after this the machine is ended in any case.
constexpr std::chrono::milliseconds machine_time_allowance = std::chrono::minutes(2);

// What a script's task is called when nobody gave it a wish.
constexpr std::string_view scripted_prompt = "Follow the script.";

Result<std::string> read_prompt(const TaskCommand& command) {
  if (!command.prompt_file.empty()) {
    auto text = read_file(command.prompt_file, max_prompt_bytes);
    if (!text) {
      auto error = with_context(std::move(text).error(), "reading the wish");
      error.hint = fmt::format("--file names a file with the wish in it, of at most {}",
                               to_string(ByteSize{max_prompt_bytes}));
      return fail(std::move(error));
    }
    if (text->find_first_not_of(" \t\r\n") == std::string::npos)
      return fail(ErrorCode::invalid_argument, command.prompt_file.string() + " is empty",
                  "write the wish into it");
    return *text;
  }
  return command.prompt.empty() ? std::string(scripted_prompt) : command.prompt;
}

// Paths are made absolute: the task may be resumed from another folder.
Result<agent::ProviderSpec> provider_spec(const TaskCommand& command) {
  agent::ProviderSpec spec;
  spec.model = command.model;
  spec.base_url = command.base_url;
  if (!command.key_file.empty()) spec.key_file = std::filesystem::absolute(command.key_file);
  constexpr std::string_view scripted = "scripted:";
  if (spec.model.starts_with(scripted))
    spec.model =
        std::string(scripted) + std::filesystem::absolute(spec.model.substr(scripted.size())).string();
  if (spec.model.empty())
    return fail(ErrorCode::invalid_argument, "no model is named",
                "give one: --model anthropic:NAME (key in ANTHROPIC_API_KEY), or --model openai:NAME "
                "--base-url URL for a "
                "local server");
  return spec;
}

agent::Grants task_grants(const std::vector<mounts::Grant>& grants, const session::GuestSpec& guest,
                          const GuestArguments& arguments) {
  agent::Grants granted;
  granted.folder_limits = {arguments.bulk_limit, arguments.write_limit, arguments.file_limit,
                           arguments.refuse_escaping_symlinks};
  for (const auto& grant : grants) {
    granted.folders.push_back({grant.host_path.string(), grant.guest_path(), folder_mode(grant.mode)});
  }
  granted.cpus = guest.cpus;
  granted.memory = guest.memory;
  granted.image = guest.image;
  return granted;
}

// Asks on the terminal and waits for a line, or for the task's stop.
Result<std::string> ask_on_terminal(Console& console, const std::string& question,
                                    const std::vector<std::string>& choices, std::stop_token stop) {
  console.progress("");
  console.note("? " + printable(question));
  for (std::size_t i = 0; i < choices.size(); ++i)
    console.note(fmt::format("  {}. {}", i + 1, one_line(choices[i], 200)));
  console.note(choices.empty() ? "Your answer, then Enter:" : "A number or your own answer, then Enter:");
  UniqueFd wake(eventfd(0, EFD_CLOEXEC));
  std::stop_callback on_stop(stop, [&] {
    std::uint64_t one = 1;
    (void)!write(wake.get(), &one, sizeof one);
  });
  std::string line;
  for (;;) {
    pollfd waited[2] = {{STDIN_FILENO, POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (poll(waited, 2, -1) < 0) continue;
    if (waited[1].revents != 0) return fail(ErrorCode::cancelled, "the task was stopped");
    char byte = 0;
    ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || byte == '\n') break;
    line += byte;
  }
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (line == std::to_string(i + 1)) return choices[i];
  return line;
}

// The first signal stops the task where it can be resumed; the second ends this process at once.
class TaskStop {
 public:
  TaskStop(Console& console, Signals& signals) : signals_(signals) {
    signals_.set_handler([this, &console](int number) {
      if (number == SIGWINCH) return;
      if (number_.exchange(number) != 0) _exit(128 + number);
      console.note("stopping; once more to end at once");
      source_.request_stop();
    });
  }
  ~TaskStop() { signals_.set_handler({}); }
  std::stop_token token() const { return source_.get_token(); }
  int number() const { return number_; }

 private:
  Signals& signals_;
  std::stop_source source_;
  std::atomic<int> number_ = 0;
};

std::string describe_end(const Result<agent::TaskOutcome>& outcome) {
  if (!outcome) return one_line(outcome.error().message, 300);
  std::string text(agent::to_string(outcome->end));
  return outcome->reason.empty() ? text : text + ": " + one_line(outcome->reason, 300);
}

int report_end(const agent::TaskOutcome& outcome, const TaskId& id, int signal, Console& console) {
  Json outputs = Json::array();
  for (const auto& output : outcome.outputs) outputs.push_back(to_json(output));
  console.object(Json{{"type", "task_end"},
                      {"task", id.value()},
                      {"end", agent::to_string(outcome.end)},
                      {"reason", outcome.reason},
                      {"answer", outcome.answer},
                      {"outputs", outputs},
                      {"turns", outcome.turns},
                      {"usage", to_json(outcome.usage)}});
  if (outcome.end == agent::TaskEnd::completed) {
    console.note(fmt::format("task {}: completed in {} turns", id.value(), outcome.turns));
    return exit_status::ok;
  }
  if (outcome.end == agent::TaskEnd::stopped) {
    console.note(fmt::format("task {}: stopped", id.value()));
    console.note(fmt::format("to do: anchorhold sessions resume {}", id.value()));
    return signal != 0 ? 128 + signal : exit_status::not_completed;
  }
  std::string hint = outcome.hint;
  if (hint.empty() && outcome.end == agent::TaskEnd::limit)
    hint = fmt::format("give it more and go on: anchorhold sessions resume {} --max-turns N --max-time TIME",
                       id.value());
  if (hint.empty())
    hint = fmt::format(
        "see what was done: anchorhold sessions show {0}; try to go on: anchorhold sessions resume {0}",
        id.value());
  console.error({ErrorCode::failed_precondition, fmt::format("the task did not complete: {}", outcome.reason),
                 std::move(hint)});
  return exit_status::not_completed;
}

}  // namespace

Result<agent::TaskStore> open_task_store() {
  return agent::TaskStore::open(ANCHORHOLD_TRY(state_directory()) / "tasks");
}

Result<int> run_stored_task(agent::StoredTask task, std::vector<mounts::Grant> grants,
                            const agent::ProviderSpec& provider_spec, const GuestArguments& guest, Host& host,
                            Signals& signals) {
  Console& console = host.console();
  if (guest.wait_for_answers) host.asker().wait_for_answers();
  auto provider = ANCHORHOLD_TRY(agent::make_provider(provider_spec));
  auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
  session::SessionSpec spec;
  spec.id = SessionId(task.id().value());
  spec.task = task.id();
  spec.grants = std::move(grants);
  spec.guest = Host::guest_spec(guest);
  spec.limits = Host::share_limits(guest);
  spec.egress = ANCHORHOLD_TRY(host.egress_spec(guest));
  // The task's own limit ends it; this ends the machine of a task that does not notice.
  if (auto limit = task.spec().limits.wall_time; limit.count() > 0)
    spec.guest.wall_time = limit + machine_time_allowance;
  session::SessionRecord record;
  record.id = spec.id;
  record.kind = session::SessionKind::task;
  record.title = one_line(task.spec().prompt, 200);
  record.image = guest.image;
  record.grants = describe(spec.grants);
  record.network = guest.network;
  record.credentials = guest.credentials;
  record.answers = guest.answers;
  ANCHORHOLD_CHECK(store.begin(record, host.clock()));
  console.object(Json{{"type", "task"},
                      {"task", task.id().value()},
                      {"model", provider_spec.model},
                      {"grants", record.grants}});
  console.note("task " + task.id().value());
  if (auto warning = agent::key_file_warning(provider_spec.key_file); !warning.empty())
    console.note("warning: " + one_line(warning, 1000));

  TaskStop stop(console, signals);
  Result<agent::TaskOutcome> outcome = fail(ErrorCode::internal, "the task was not run");
  auto session_parts = host.session_parts(guest);
  session_parts.answered = [&](const auto& answers) {
    keep_answers(record.id, answers, console, host.clock());
  };
  auto session = session::Session::open(std::move(spec), std::move(session_parts));
  Result<std::unique_ptr<session::ControlServer>> door;
  if (session) door = open_door(**session, task.id(), console, host.clock());
  if (!session) {
    outcome = fail(std::move(session).error());
  } else if (!door) {
    outcome = fail(std::move(door).error());
  } else {
    SerialExecutor timer("task timer");
    session::SessionWorkspace workspace(**session);
    session::SessionFiles files(**session);
    session::SessionWeb web(**session);
    TaskView view(console);
    agent::TaskParts parts{.provider = *provider,
                           .workspace = workspace,
                           .files = files,
                           .observer = view,
                           .clock = host.clock(),
                           .timer = timer,
                           .ask_user = {},
                           .events = &(*session)->events(),
                           .web = &web};
    if (isatty(STDIN_FILENO) && !console.json())
      parts.ask_user = [&console, &host](const std::string& question, const std::vector<std::string>& choices,
                                         std::stop_token token) {
        std::lock_guard shown(host.asker().terminal());
        return ask_on_terminal(console, question, choices, token);
      };
    outcome = agent::run_task(task, parts, stop.token());
    (*session)->close("the task ended");
    door->reset();
  }
  console.progress("");
  if (auto status = store.end(record.id, describe_end(outcome), host.clock()); !status)
    console.error(status.error());
  if (!outcome) return fail(std::move(outcome).error());
  return report_end(*outcome, task.id(), stop.number(), console);
}

Result<int> run_task_command(const TaskCommand& command, Console& console, Signals& signals) {
  auto host = ANCHORHOLD_TRY(Host::open(console));
  agent::TaskSpec spec;
  spec.prompt = ANCHORHOLD_TRY(read_prompt(command));
  spec.provider = ANCHORHOLD_TRY(provider_spec(command));
  if (command.max_turns) spec.limits.turns = *command.max_turns;
  if (command.max_time) spec.limits.wall_time = *command.max_time;
  auto grants = ANCHORHOLD_TRY(Host::resolve_grants(command.guest.grants));
  spec.grants = task_grants(grants, Host::guest_spec(command.guest), command.guest);
  // Before anything is stored: a missing key or script is the commonest fault.
  ANCHORHOLD_TRY(agent::make_provider(spec.provider));
  agent::ProviderSpec provider = spec.provider;
  auto tasks = ANCHORHOLD_TRY(open_task_store());
  auto task = ANCHORHOLD_TRY(tasks.create(std::move(spec), host->clock()));
  return run_stored_task(std::move(task), std::move(grants), provider, command.guest, *host, signals);
}

Result<int> resume_task(const TaskId& id, const SessionsCommand& command, Console& console,
                        Signals& signals) {
  auto host = ANCHORHOLD_TRY(Host::open(console));
  auto tasks = ANCHORHOLD_TRY(open_task_store());
  auto task = ANCHORHOLD_TRY(tasks.open_task(id, host->clock()));
  const agent::TaskSpec& spec = task.spec();
  GuestArguments guest;
  guest.image = spec.grants.image;
  guest.cpus = spec.grants.cpus;
  guest.memory = spec.grants.memory;
  guest.bulk_limit = spec.grants.folder_limits.bulk_changes;
  guest.write_limit = spec.grants.folder_limits.bytes_written;
  guest.file_limit = spec.grants.folder_limits.files;
  guest.refuse_escaping_symlinks = spec.grants.folder_limits.refuse_escaping_symlinks;
  guest.wait_for_answers = command.wait_for_answers;
  // What it was allowed and what was answered then holds again.
  auto sessions = ANCHORHOLD_TRY(session::SessionStore::open_default());
  if (auto record = sessions.find(id.value())) {
    guest.network = std::move(record->network);
    guest.credentials = std::move(record->credentials);
    guest.answers = std::move(record->answers);
  }
  for (const auto& folder : spec.grants.folders)
    guest.grants.push_back({folder.host_path, folder.mode == agent::FolderMode::read_only ? mounts::Mode::ro
                                              : folder.mode == agent::FolderMode::read_write
                                                  ? mounts::Mode::rw
                                                  : mounts::Mode::rw_no_delete});
  auto grants = ANCHORHOLD_TRY(Host::resolve_grants(guest.grants));
  for (std::size_t i = 0; i < grants.size(); ++i)
    if (grants[i].guest_path() != spec.grants.folders[i].guest_path)
      return fail(ErrorCode::failed_precondition,
                  fmt::format("{} is no longer at {}", spec.grants.folders[i].host_path,
                              spec.grants.folders[i].guest_path),
                  "put the granted folders back where they were");
  agent::ProviderSpec provider = spec.provider;
  if (!command.model.empty()) {
    // Another kind of model is served elsewhere and has another key.
    auto kind = [](const std::string& model) { return model.substr(0, model.find(':')); };
    if (kind(command.model) != kind(provider.model)) provider = {};
    provider.model = command.model;
  }
  if (!command.base_url.empty()) provider.base_url = command.base_url;
  if (!command.key_file.empty()) provider.key_file = std::filesystem::absolute(command.key_file);
  agent::Limits limits = spec.limits;
  if (command.max_turns) limits.turns = *command.max_turns;
  if (command.max_time) limits.wall_time = *command.max_time;
  ANCHORHOLD_TRY(agent::make_provider(provider));  // before anything is stored
  ANCHORHOLD_CHECK(task.change(limits, provider));
  provider = spec.provider;
  return run_stored_task(std::move(task), std::move(grants), provider, guest, *host, signals);
}

}  // namespace anchorhold::cli
