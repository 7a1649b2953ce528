// From a request to a plan: what the contract demands is checked here, before anything is made.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

#include "exec.h"

namespace anchorhold::guest {
namespace {

// execve(2): the limits of Linux with its usual 8 MiB of stack.
constexpr std::size_t most_bytes_in_all = 2u << 20;
constexpr std::size_t most_bytes_in_one = 128u * 1024 - 1;
constexpr std::size_t most_strings = 100'000;
constexpr std::size_t most_tail = 16u << 20;
constexpr std::size_t default_tail = 1u << 20;
constexpr std::size_t shown_command_bytes = 256;
constexpr std::string_view default_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

bool valid_id(const std::string& id) {
  return id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

Status check_strings(const wire::ExecRequest& request) {
  auto has_zero = [](const std::string& text) { return text.find('\0') != text.npos; };
  if ((request.argv_size() > 0) == !request.shell_command().empty())
    return fail(ErrorCode::invalid_argument, "a command needs either argv or shell_command");
  if (request.argv_size() > 0 && request.argv(0).empty())
    return fail(ErrorCode::invalid_argument, "the program's name is empty");
  if (std::any_of(request.argv().begin(), request.argv().end(), has_zero) ||
      has_zero(request.shell_command()) || has_zero(request.working_directory()))
    return fail(ErrorCode::invalid_argument, "a command cannot contain a zero byte");
  for (const auto& [name, value] : request.environment()) {
    if (name.empty() || name.find('=') != name.npos || has_zero(name) || has_zero(value))
      return fail(ErrorCode::invalid_argument,
                  fmt::format("not a name of an environment variable: \"{}\"", name));
  }
  return {};
}

// The kernel's own answer is only "Argument list too long"; here there is still the time to say how long.
SpawnError check_size(const ExecPlan& plan) {
  std::size_t total = 0;
  std::size_t longest = 0;
  for (const auto* strings : {&plan.argv, &plan.environment}) {
    for (const auto& text : *strings) {
      total += text.size() + 1 + sizeof(char*);
      longest = std::max(longest, text.size());
    }
  }
  if (longest > most_bytes_in_one)
    return {E2BIG, fmt::format("an argument of {} bytes is too long: one argument can have at most {} bytes",
                               longest, most_bytes_in_one)};
  if (total > most_bytes_in_all || plan.argv.size() + plan.environment.size() > most_strings)
    return {E2BIG, fmt::format("the arguments and the environment take {} bytes: at most {} are possible",
                               total, most_bytes_in_all)};
  return {};
}

std::string shell() {
  return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
}

std::string shown_command(const wire::ExecRequest& request) {
  std::string text = request.shell_command().substr(0, shown_command_bytes + 1);
  for (int i = 0; i < request.argv_size() && text.size() <= shown_command_bytes; ++i) {
    if (i > 0) text += ' ';
    text += request.argv(i).substr(0, shown_command_bytes + 1);
  }
  if (text.size() > shown_command_bytes) text = text.substr(0, shown_command_bytes - 3) + "...";
  return text;
}

// A request that sets one spelling of "http_proxy" or "HTTP_PROXY" sets both: programs read either.
std::string other_case(std::string_view name) {
  std::string other(name);
  for (char& c : other) {
    if (c >= 'a' && c <= 'z')
      c = static_cast<char>(c - 'a' + 'A');
    else if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
  }
  return other;
}

std::map<std::string, std::string> environment_of(const wire::ExecRequest& request, const Account& account,
                                                  const Machinery& machinery) {
  std::map<std::string, std::string> environment;
  if (!request.clear_environment()) {
    if (machinery.environment != nullptr) environment = *machinery.environment;
    for (const auto& [name, value] : request.environment())
      if (name.ends_with("_PROXY") || name.ends_with("_proxy")) environment.erase(other_case(name));
    environment.merge(std::map<std::string, std::string>{{"PATH", std::string(default_path)},
                                                         {"HOME", account.home},
                                                         {"USER", account.name},
                                                         {"LOGNAME", account.name},
                                                         {"SHELL", account.shell},
                                                         {"LANG", "C.UTF-8"}});
    if (request.has_terminal()) environment["TERM"] = "xterm-256color";
  }
  for (const auto& [name, value] : request.environment()) environment[name] = value;
  return environment;
}

Status plan_streams(const wire::ExecRequest& request, ExecPlan& plan) {
  plan.feed_input = request.has_terminal() || request.input() == wire::INPUT_MODE_PIPE;
  plan.errors = request.error();
  if (plan.errors == wire::ERROR_MODE_UNSPECIFIED) plan.errors = wire::ERROR_MODE_APART;
  if (!wire::InputMode_IsValid(request.input()) || !wire::ErrorMode_IsValid(request.error()))
    return fail(ErrorCode::invalid_argument, "an unknown input or error mode");
  if (request.has_terminal()) {
    plan.errors = wire::ERROR_MODE_MERGED;
    plan.terminal = request.terminal();
  }
  if (request.tail_bytes() > most_tail)
    return fail(ErrorCode::invalid_argument,
                fmt::format("at most {} bytes of an output are kept", most_tail));
  plan.background = request.background();
  if (plan.background) plan.tail_bytes = request.tail_bytes() > 0 ? request.tail_bytes() : default_tail;
  return {};
}

}  // namespace

Result<ExecPlan> plan_exec(const wire::ExecRequest& request, const Machinery& machinery) {
  if (!valid_id(request.exec_id()))
    return fail(ErrorCode::invalid_argument, "an exec_id has at most 64 characters of [a-z0-9-]");
  ANCHORHOLD_CHECK(check_strings(request));
  ExecPlan plan;
  plan.id = request.exec_id();
  ANCHORHOLD_CHECK(plan_streams(request, plan));
  auto account = find_account(request.user());
  if (account)
    plan.account = *account;
  else
    plan.refused = {EINVAL, account.error().message};
  if (account && geteuid() != 0 && account->uid != geteuid())
    plan.refused = {EPERM, fmt::format("the agent is not root and cannot become {}", account->name)};

  plan.command = shown_command(request);
  plan.argv.assign(request.argv().begin(), request.argv().end());
  if (plan.argv.empty()) plan.argv = {shell(), "-c", request.shell_command()};
  auto environment = environment_of(request, plan.account, machinery);
  if (machinery.groups == nullptr) environment["ANCHORHOLD_EXEC_ID"] = plan.id;
  for (const auto& [name, value] : environment) plan.environment.push_back(name + "=" + value);
  plan.candidates = candidates_for(
      plan.argv[0], environment.contains("PATH") ? environment["PATH"] : std::string(default_path));
  plan.working_directory = !request.working_directory().empty()           ? request.working_directory()
                           : access(plan.account.home.c_str(), X_OK) == 0 ? plan.account.home
                                                                          : "/";
  if (plan.refused.error_number == 0) plan.refused = check_size(plan);

  plan.time_limit = std::chrono::milliseconds(std::min<std::uint64_t>(request.time_limit_ms(), 1ull << 40));
  plan.limits = {request.memory_limit_bytes(), request.process_limit()};
  if (plan.limits.processes == 0) plan.limits.processes = machinery.default_process_limit;
  bool memory = machinery.groups != nullptr && machinery.groups->memory_limits();
  bool processes = machinery.groups != nullptr && machinery.groups->process_limits();
  if ((request.memory_limit_bytes() > 0 && !memory) || (request.process_limit() > 0 && !processes))
    return fail(ErrorCode::unsupported, "this guest cannot limit memory or processes of a command",
                "its kernel needs the memory and pids controllers of cgroup v2");
  return plan;
}

}  // namespace anchorhold::guest
