#include "guest_channel.h"

#include <cerrno>
#include <fmt/format.h>
#include <poll.h>
#include <string.h>

#include "vsock/channel.h"

namespace anchorhold::session {
namespace {

ExecStatus::Cause cause_of(wire::ExecStatus::Cause cause) {
  using C = ExecStatus::Cause;
  switch (cause) {
    case wire::ExecStatus::CAUSE_SIGNALLED:
      return C::signalled;
    case wire::ExecStatus::CAUSE_TIME_LIMIT:
      return C::time_limit;
    case wire::ExecStatus::CAUSE_OUT_OF_MEMORY:
      return C::out_of_memory;
    case wire::ExecStatus::CAUSE_PROCESS_LIMIT:
      return C::process_limit;
    case wire::ExecStatus::CAUSE_KILLED:
      return C::killed;
    case wire::ExecStatus::CAUSE_NOT_STARTED:
      return C::not_started;
    default:
      return C::exited;
  }
}

std::chrono::nanoseconds nanoseconds(std::uint64_t count) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min<std::uint64_t>(count, INT64_MAX)));
}

}  // namespace

bool GuestChannel::lost() const {
  pollfd entry{.fd = stream.get(), .events = POLLRDHUP, .revents = 0};
  if (poll(&entry, 1, 0) > 0) broken = true;
  return broken;
}

Error GuestChannel::error(const grpc::Status& status) const {
  // The agent itself never says "unavailable": it is what the transport says when it has ended.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    broken = true;
    std::string cause = lost_cause ? lost_cause() : std::string();
    if (cause.empty()) cause = "the connection to it has ended";
    return {ErrorCode::unavailable, "guest lost: " + cause,
            "start the command again: a new guest will be started"};
  }
  std::string message = status.error_message();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    message = "the guest did not answer in time";
  return {vsock::code_of(status.error_code()), message, status.error_details()};
}

ExecStatus from_wire(const wire::ExecStatus& status) {
  ExecStatus result;
  result.cause = cause_of(status.cause());
  result.code = status.exit_code();
  result.signal = status.signal();
  result.error_number = status.errno_value();
  result.detail = status.message();
  result.wall_time = nanoseconds(status.wall_time_ns());
  result.cpu_time = nanoseconds(status.cpu_time_ns());
  result.peak_memory = {status.peak_memory_bytes()};
  return result;
}

ExecInfo from_wire(const wire::ExecInfo& info) {
  ExecInfo result;
  result.id = ExecId(info.exec_id());
  result.command = info.command();
  result.background = info.background();
  if (!info.running()) result.status = from_wire(info.status());
  result.wall_time = nanoseconds(info.wall_time_ns());
  result.cpu_time = nanoseconds(info.cpu_time_ns());
  result.memory = {info.memory_bytes()};
  result.processes = info.processes();
  result.standard_output_bytes = info.stdout_bytes();
  result.standard_error_bytes = info.stderr_bytes();
  result.standard_output_dropped = info.stdout_dropped_bytes();
  result.standard_error_dropped = info.stderr_dropped_bytes();
  return result;
}

wire::OutputStream to_wire(OutputStream stream) {
  return stream == OutputStream::standard_output ? wire::OUTPUT_STREAM_STDOUT : wire::OUTPUT_STREAM_STDERR;
}

wire::SignalExecRequest::Scope to_wire(SignalScope scope) {
  switch (scope) {
    case SignalScope::leader:
      return wire::SignalExecRequest::SCOPE_LEADER;
    case SignalScope::tree:
      return wire::SignalExecRequest::SCOPE_TREE;
    case SignalScope::group:
      break;
  }
  return wire::SignalExecRequest::SCOPE_GROUP;
}

Result<wire::ExecRequest> to_wire(const ExecSpec& spec) {
  if (spec.argv.empty() == spec.shell_command.empty())
    return fail(ErrorCode::invalid_argument, "a command needs either argv or a shell command");
  wire::ExecRequest request;
  for (const auto& argument : spec.argv) request.add_argv(argument);
  request.set_shell_command(spec.shell_command);
  for (const auto& [name, value] : spec.environment) {
    if (name.empty() || name.find_first_of(std::string("=\0", 2)) != name.npos)
      return fail(ErrorCode::invalid_argument,
                  fmt::format("not a name of an environment variable: \"{}\"", name));
    (*request.mutable_environment())[name] = value;
  }
  request.set_clear_environment(spec.clear_environment);
  request.set_working_directory(spec.working_directory);
  request.set_user(spec.user);
  request.set_input(spec.input == ExecSpec::Input::pipe ? wire::INPUT_MODE_PIPE : wire::INPUT_MODE_EMPTY);
  switch (spec.errors) {
    case ExecSpec::Errors::apart:
      request.set_error(wire::ERROR_MODE_APART);
      break;
    case ExecSpec::Errors::merged:
      request.set_error(wire::ERROR_MODE_MERGED);
      break;
    case ExecSpec::Errors::discarded:
      request.set_error(wire::ERROR_MODE_DISCARDED);
      break;
  }
  if (spec.terminal) {
    request.mutable_terminal()->set_rows(spec.terminal->rows);
    request.mutable_terminal()->set_columns(spec.terminal->columns);
  }
  if (spec.time_limit.count() < 0) return fail(ErrorCode::invalid_argument, "a negative time limit");
  request.set_time_limit_ms(static_cast<std::uint64_t>(spec.time_limit.count()));
  request.set_memory_limit_bytes(spec.memory_limit.bytes);
  request.set_process_limit(spec.process_limit);
  return request;
}

std::optional<ExecStatus> refuse_too_long(const wire::ExecRequest& request) {
  constexpr std::size_t most = 2u << 20;
  if (request.ByteSizeLong() <= most) return std::nullopt;
  ExecStatus status;
  status.cause = ExecStatus::Cause::not_started;
  status.error_number = E2BIG;
  status.detail =
      fmt::format("the command with its arguments and environment takes {} bytes: at most {} are possible",
                  request.ByteSizeLong(), most);
  return status;
}

std::string to_string(const ExecStatus& status) {
  using C = ExecStatus::Cause;
  auto with_detail = [&](const char* text) {
    return status.detail.empty() ? std::string(text) : fmt::format("{}: {}", text, status.detail);
  };
  switch (status.cause) {
    case C::exited:
      return fmt::format("exited with {}", status.code);
    case C::signalled: {
      const char* name = sigabbrev_np(status.signal);
      return name != nullptr ? fmt::format("killed by SIG{}", name)
                             : fmt::format("killed by signal {}", status.signal);
    }
    case C::time_limit:
      return with_detail("stopped at its time limit");
    case C::out_of_memory:
      return with_detail("out of memory");
    case C::process_limit:
      return with_detail("too many processes");
    case C::killed:
      return with_detail("killed");
    case C::not_started:
      return with_detail("could not be started");
  }
  return "unknown";
}

int shell_exit_code(const ExecStatus& status) {
  using C = ExecStatus::Cause;
  switch (status.cause) {
    case C::exited:
      return status.code;
    case C::signalled:
      return 128 + status.signal;
    case C::time_limit:
      return 124;
    case C::out_of_memory:
    case C::process_limit:
    case C::killed:
      return 137;
    case C::not_started:
      return status.error_number == ENOENT ? 127 : 126;
  }
  return 125;
}

}  // namespace anchorhold::session
