#include "session/workspace.h"

#include <fmt/format.h>

#include "base/id.h"

namespace anchorhold::session {
namespace {

using agent::ShellEnd;

ExecSpec exec_spec(const agent::ShellCommand& command) {
  ExecSpec spec;
  spec.shell_command = command.command;
  spec.environment = command.environment;
  spec.working_directory = command.working_directory;
  spec.time_limit = command.time_limit;
  if (command.tty) spec.terminal = TerminalSize{};
  return spec;
}

ShellEnd ended_by(ShellEnd::Cause cause, std::string detail) {
  ShellEnd end;
  end.cause = cause;
  end.detail = std::move(detail);
  return end;
}

// Why there is no guest, in one line that also says what to do about it.
ShellEnd no_guest(const Error& error) {
  if (error.code == ErrorCode::cancelled) return ended_by(ShellEnd::Cause::killed, error.message);
  std::string detail = error.message;
  if (!error.hint.empty()) detail += "; " + error.hint;
  return ended_by(ShellEnd::Cause::unavailable, std::move(detail));
}

// What went wrong between us and the guest, as an end of the command where it is one.
Result<ShellEnd> not_ended(const Error& error) {
  switch (error.code) {
    case ErrorCode::unavailable:
      return ended_by(ShellEnd::Cause::guest_lost, error.message);
    case ErrorCode::cancelled:
      return ended_by(ShellEnd::Cause::killed, error.message);
    case ErrorCode::invalid_argument:
    case ErrorCode::resource_exhausted:
      return ended_by(ShellEnd::Cause::refused, error.message);
    default:
      return fail(error);
  }
}

}  // namespace

agent::ShellEnd to_shell_end(const ExecStatus& status) {
  ShellEnd end;
  end.detail = status.detail;
  switch (status.cause) {
    case ExecStatus::Cause::exited:
      end.cause = ShellEnd::Cause::exited;
      end.code = status.code;
      break;
    case ExecStatus::Cause::signalled:
      end.cause = ShellEnd::Cause::signalled;
      end.signal = status.signal;
      break;
    case ExecStatus::Cause::time_limit:
      end.cause = ShellEnd::Cause::time_limit;
      break;
    case ExecStatus::Cause::out_of_memory:
      end.cause = ShellEnd::Cause::out_of_memory;
      break;
    case ExecStatus::Cause::process_limit:
      end.cause = ShellEnd::Cause::killed;
      if (end.detail.empty()) end.detail = to_string(status);
      break;
    case ExecStatus::Cause::killed:
      end.cause = ShellEnd::Cause::killed;
      break;
    case ExecStatus::Cause::not_started:
      end.cause = ShellEnd::Cause::refused;
      break;
  }
  return end;
}

Result<ShellEnd> SessionWorkspace::run(const agent::ShellCommand& command, const agent::OutputSink& sink,
                                       std::stop_token stop) {
  auto guest = session_.guest(stop);
  if (!guest) return no_guest(guest.error());
  auto exec = session_.start_exec(**guest, exec_spec(command));
  if (!exec) return not_ended(exec.error());
  for (;;) {
    auto piece = (*exec)->read_any(stop);
    if (!piece || !*piece) break;  // what broke, wait() tells
    auto stream = (*piece)->stream == OutputStream::standard_output ? agent::OutputStream::out
                                                                    : agent::OutputStream::err;
    if (!sink(stream, (*piece)->bytes)) {
      (void)(*exec)->kill();
      break;
    }
  }
  auto status = (*exec)->wait(stop);
  session_.exec_ended(**guest, (*exec)->id(), status);
  if (!status) return not_ended(status.error());
  return to_shell_end(*status);
}

Result<agent::JobStart> SessionWorkspace::start_job(const agent::ShellCommand& command,
                                                    std::stop_token stop) {
  agent::JobStart start;
  auto guest = session_.guest(stop);
  if (!guest) {
    start.end = no_guest(guest.error());
    return start;
  }
  BackgroundSpec spec;
  spec.exec = exec_spec(command);
  if (!spec.exec.terminal) spec.exec.errors = ExecSpec::Errors::merged;
  auto started = session_.start_background(**guest, std::move(spec));
  if (!started) {
    start.end = ANCHORHOLD_TRY(not_ended(started.error()));
    return start;
  }
  if (started->failed) {
    start.end = to_shell_end(*started->failed);
    return start;
  }
  // Random: a task that is resumed by another process must not meet an old name again.
  start.id = "job-" + random_hex(4);
  jobs_.emplace(start.id, Job{*guest, started->id});
  return start;
}

Result<SessionWorkspace::Job*> SessionWorkspace::find_job(const agent::JobId& id) {
  auto found = jobs_.find(id);
  if (found == jobs_.end())
    return fail(ErrorCode::not_found, fmt::format("there is no background job {}", id));
  return &found->second;
}

Result<agent::JobState> SessionWorkspace::poll_job(const agent::JobId& id, std::uint64_t offset,
                                                   std::size_t max_bytes, std::chrono::milliseconds wait,
                                                   std::stop_token stop) {
  Job& job = *ANCHORHOLD_TRY(find_job(id));
  agent::JobState state;
  state.next_offset = offset;
  auto output =
      job.guest->client().poll_output(job.exec, OutputStream::standard_output, offset, max_bytes, wait, stop);
  if (!output) {
    state.end = ANCHORHOLD_TRY(not_ended(output.error()));
    return state;
  }
  state.output = std::move(output->bytes);
  state.next_offset = output->next_offset;
  state.lost = output->dropped;
  state.running = true;
  // The end of its output is not the end of a job: it may have closed it.
  for (const auto& info : ANCHORHOLD_TRY(job.guest->client().list_execs())) {
    if (info.id != job.exec || !info.status) continue;
    state.running = false;
    state.end = to_shell_end(*info.status);
    if (!job.end_recorded) session_.exec_ended(*job.guest, job.exec, *info.status);
    job.end_recorded = true;
  }
  return state;
}

Status SessionWorkspace::kill_job(const agent::JobId& id) {
  Job& job = *ANCHORHOLD_TRY(find_job(id));
  auto killed = job.guest->client().kill_background(job.exec);
  if (!killed && killed.error().code == ErrorCode::unavailable) return {};  // gone with its guest
  return killed;
}

}  // namespace anchorhold::session
