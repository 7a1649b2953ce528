#include "fakes/agent_workspace.h"

#include <algorithm>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold::fakes {
namespace {

using agent::OutputStream;
using agent::ShellEnd;
using Cause = agent::ShellEnd::Cause;

constexpr std::size_t piece_bytes = 64 << 10;

std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool flood(std::uint64_t bytes, const agent::OutputSink& sink) {
  std::string piece;
  for (std::uint64_t made = 0, line = 0; made < bytes;) {
    piece.clear();
    while (piece.size() < piece_bytes - 32) piece += fmt::format("line {}\n", line++);
    piece.resize(std::min<std::uint64_t>(piece.size(), bytes - made));
    made += piece.size();
    if (!sink(OutputStream::out, piece)) return false;
  }
  return true;
}

}  // namespace

void FakeWorkspace::set_unavailable(std::string cause) {
  std::lock_guard lock(mutex_);
  unavailable_ = std::move(cause);
}

std::vector<agent::ShellCommand> FakeWorkspace::started() const {
  std::lock_guard lock(mutex_);
  return started_;
}

int FakeWorkspace::warm_ups() const {
  std::lock_guard lock(mutex_);
  return warm_ups_;
}

std::vector<agent::JobId> FakeWorkspace::killed_jobs() const {
  std::lock_guard lock(mutex_);
  return killed_;
}

void FakeWorkspace::await_waiting() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_ > 0; });
}

void FakeWorkspace::warm_up() {
  std::lock_guard lock(mutex_);
  ++warm_ups_;
}

bool FakeWorkspace::begin(const agent::ShellCommand& command, ShellEnd& end) {
  std::lock_guard lock(mutex_);
  if (!unavailable_.empty()) {
    end = {Cause::unavailable, 0, 0, unavailable_};
    return false;
  }
  started_.push_back(command);
  if (!journal_.empty()) {
    UniqueFd file(open(journal_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    std::string line = command.command + "\n";
    if (!file || !write_all(file.get(), std::as_bytes(std::span(line)))) std::abort();
  }
  return true;
}

ShellEnd FakeWorkspace::wait_for_kill(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  changed_.notify_all();
  changed_.wait(lock, stop, [] { return false; });
  --waiting_;
  return {Cause::killed, 0, 0, ""};
}

ShellEnd FakeWorkspace::interpret(const agent::ShellCommand& command, const agent::OutputSink& sink,
                                  std::stop_token stop) {
  std::string_view rest = command.command;
  while (!rest.empty()) {
    auto end = rest.find(';');
    std::string_view part = trimmed(rest.substr(0, end));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    auto space = part.find(' ');
    std::string_view word = part.substr(0, space);
    std::string_view argument = space == part.npos ? std::string_view() : part.substr(space + 1);
    bool wanted = true;
    if (word == "print") wanted = sink(OutputStream::out, std::string(argument) + "\n");
    if (word == "warn") wanted = sink(OutputStream::err, std::string(argument) + "\n");
    if (word == "bytes") wanted = sink(OutputStream::out, from_hex(argument));
    if (word == "flood") wanted = flood(number_in(argument), sink);
    if (word == "wait") return wait_for_kill(std::move(stop));
    if (word == "late") return {Cause::time_limit, 0, 0, ""};
    if (word == "exit") return {Cause::exited, static_cast<int>(number_in(argument)), 0, ""};
    if (word == "signal") return {Cause::signalled, 0, static_cast<int>(number_in(argument)), ""};
    if (word == "oom") return {Cause::out_of_memory, 0, 0, ""};
    if (word == "lose") return {Cause::guest_lost, 0, 0, "the machine ended"};
    if (!wanted || stop.stop_requested()) return {Cause::killed, 0, 0, ""};
  }
  return {};
}

Result<ShellEnd> FakeWorkspace::run(const agent::ShellCommand& command, const agent::OutputSink& sink,
                                    std::stop_token stop) {
  ShellEnd end;
  if (!begin(command, end)) return end;
  return interpret(command, sink, std::move(stop));
}

Result<agent::JobStart> FakeWorkspace::start_job(const agent::ShellCommand& command, std::stop_token stop) {
  agent::JobStart start;
  if (!begin(command, start.end)) return start;
  Job job;
  auto waits = command.command.find("wait");
  agent::ShellCommand first = command;
  if (waits != std::string::npos) first.command.resize(waits);
  job.end = interpret(
      first,
      [&](OutputStream, std::string_view bytes) {
        job.output += bytes;
        return true;
      },
      std::move(stop));
  job.running = waits != std::string::npos;
  std::lock_guard lock(mutex_);
  start.id = fmt::format("job{}", jobs_.size() + 1);
  jobs_[start.id] = std::move(job);
  return start;
}

Result<agent::JobState> FakeWorkspace::poll_job(const agent::JobId& id, std::uint64_t offset,
                                                std::size_t max_bytes, std::chrono::milliseconds,
                                                std::stop_token) {
  std::lock_guard lock(mutex_);
  auto found = jobs_.find(id);
  if (found == jobs_.end()) return fail(ErrorCode::not_found, "no such job");
  const Job& job = found->second;
  agent::JobState state;
  state.running = job.running;
  state.end = job.end;
  state.output = job.output.substr(std::min<std::uint64_t>(offset, job.output.size()), max_bytes);
  state.next_offset = offset + state.output.size();
  return state;
}

Status FakeWorkspace::kill_job(const agent::JobId& id) {
  std::lock_guard lock(mutex_);
  auto found = jobs_.find(id);
  if (found == jobs_.end()) return fail(ErrorCode::not_found, "no such job");
  killed_.push_back(id);
  if (found->second.running) found->second = {found->second.output, false, {Cause::killed, 0, 0, ""}};
  return {};
}

}  // namespace anchorhold::fakes
