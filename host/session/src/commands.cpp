#include "commands.h"

#include <fmt/format.h>

namespace anchorhold::session {

events::Event exec_start_event(const hypervisor::MachineId& guest, const ExecId& exec, const ExecSpec& spec,
                               bool background) {
  events::Event event(events::exec_start);
  event.set(events::key::vm_id, guest.value())
      .set("exec.id", exec.value())
      .set("exec.user", spec.user.empty() ? std::string_view("default") : std::string_view(spec.user))
      .set("exec.background", background)
      .set("exec.terminal", spec.terminal.has_value());
  if (spec.shell_command.empty()) {
    event.set_content(events::ContentCategory::arguments, "exec.argv", spec.argv);
  } else {
    event.set_content(events::ContentCategory::arguments, "exec.shell_command", spec.shell_command);
  }
  return event;
}

events::Event exec_end_event(const hypervisor::MachineId& guest, const ExecId& exec,
                             const Result<ExecStatus>& status) {
  events::Event event(events::exec_end);
  event.set(events::key::vm_id, guest.value()).set("exec.id", exec.value());
  if (status) {
    event.set_guest_reported("status", to_string(*status))
        .set_guest_reported(
            "wall_ms",
            std::int64_t{std::chrono::duration_cast<std::chrono::milliseconds>(status->wall_time).count()});
    if (status->cause == ExecStatus::Cause::exited)
      event.set_guest_reported("exit_code", std::int64_t{status->code});
  } else {
    event.set(events::key::cause, status.error().message).set_severity(events::Severity::warn);
  }
  return event;
}

void RunningCommands::began(const ExecId& exec, const ExecSpec& spec) {
  constexpr std::size_t longest = 500;
  std::string words = spec.shell_command;
  if (words.empty())
    for (const auto& word : spec.argv) {
      words += (words.empty() ? "" : " ") + word;
      if (words.size() > longest) break;
    }
  if (words.size() > longest) words = words.substr(0, longest) + "…";
  std::lock_guard lock(mutex_);
  commands_.emplace_back(exec, std::move(words));
}

void RunningCommands::ended(const ExecId& exec) {
  std::lock_guard lock(mutex_);
  std::erase_if(commands_, [&](const auto& each) { return each.first == exec; });
}

void RunningCommands::all_ended() {
  std::lock_guard lock(mutex_);
  commands_.clear();
}

std::string RunningCommands::text() const {
  constexpr std::size_t most = 3;
  std::lock_guard lock(mutex_);
  std::string all;
  std::size_t count = 0;
  for (auto each = commands_.rbegin(); each != commands_.rend() && count < most; ++each, ++count)
    all += (all.empty() ? "" : "; ") + each->second;
  if (commands_.size() > most) all += fmt::format("; and {} more", commands_.size() - most);
  return all;
}

}  // namespace anchorhold::session
