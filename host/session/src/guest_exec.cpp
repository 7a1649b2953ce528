#include <fmt/format.h>
#include <mutex>
#include <thread>

#include "guest_calls.h"
#include "guest_state.h"

namespace anchorhold::session {
namespace {

// How long the guest may take to answer beyond a command's own time limit before it is held to be stuck.
constexpr std::chrono::seconds beyond_time_limit{30};
constexpr std::chrono::seconds kill_limit{15};

}  // namespace

GuestExec::State::~State() {
  if (!exec) return;
  exec->cancel();
  for (auto& output : outputs)
    if (output) output->abandon();
  if (input) input->abandon();
  std::unique_lock lock(sync->mutex);
  sync->changed.wait(lock, [this] {
    return exec->gone() && (!outputs[0] || outputs[0]->gone()) && (!outputs[1] || outputs[1]->gone()) &&
           (!input || input->gone());
  });
}

GuestExec::GuestExec(std::unique_ptr<State> state) : state_(std::move(state)) {}

GuestExec::~GuestExec() = default;

const ExecId& GuestExec::id() const {
  return state_->id;
}

Result<std::optional<std::string>> GuestExec::read(OutputStream stream, std::stop_token stop) {
  auto& output = state_->outputs[stream == OutputStream::standard_output ? 0 : 1];
  if (!output) return std::nullopt;
  {
    std::unique_lock lock(state_->sync->mutex);
    bool ready =
        state_->sync->changed.wait(lock, stop, [&] { return output->has_chunk() || output->done(); });
    if (!ready) return fail(ErrorCode::cancelled, "stopped while reading a command's output");
    if (!output->has_chunk()) {
      ANCHORHOLD_CHECK(state_->end_of(*output));
      return std::nullopt;
    }
  }
  return output->take();
}

Result<std::optional<GuestExec::Piece>> GuestExec::read_any(std::stop_token stop) {
  auto* outputs = state_->outputs;
  int ready = -1;
  {
    std::unique_lock lock(state_->sync->mutex);
    auto look = [&] {
      bool all_done = true;
      for (int i = 0; i < 2; ++i) {
        // In turns, so that a flood on one does not hide the other.
        int which = (state_->next_output + i) % 2;
        if (!outputs[which]) continue;
        if (outputs[which]->has_chunk()) {
          ready = which;
          return true;
        }
        all_done = all_done && outputs[which]->done();
      }
      return all_done;
    };
    if (!state_->sync->changed.wait(lock, stop, look))
      return fail(ErrorCode::cancelled, "stopped while reading a command's outputs");
    if (ready < 0) {
      for (int i = 0; i < 2; ++i)
        if (outputs[i]) ANCHORHOLD_CHECK(state_->end_of(*outputs[i]));
      return std::nullopt;
    }
    state_->next_output = (ready + 1) % 2;
  }
  auto stream = ready == 0 ? OutputStream::standard_output : OutputStream::standard_error;
  return Piece{stream, outputs[ready]->take()};
}

Status GuestExec::State::end_of(const OutputCall& output) const {
  if (output.status().ok()) return {};
  // The command was refused, or its call has ended: then that is the reason, and the outputs are only its
  // consequence.
  if (exec->done() && !exec->status().ok()) return fail(channel->error(exec->status()));
  if (exec->result() && output.status().error_code() == grpc::StatusCode::CANCELLED) return {};
  return fail(channel->error(output.status()));
}

Status GuestExec::write_input(std::span<const std::byte> bytes, std::stop_token stop) {
  return write_input(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                     std::move(stop));
}

Status GuestExec::write_input(std::string_view text, std::stop_token stop) {
  if (text.empty()) return {};
  std::lock_guard turn(state_->input_mutex);
  if (!state_->has_input)
    return fail(ErrorCode::failed_precondition, "the command was started without an input");
  if (!state_->input) state_->input = InputCall::start(*state_->channel, state_->sync, state_->id.value());
  return state_->input->write(text, std::move(stop));
}

Status GuestExec::close_input() {
  std::lock_guard turn(state_->input_mutex);
  if (!state_->has_input) return {};
  if (!state_->input) state_->input = InputCall::start(*state_->channel, state_->sync, state_->id.value());
  state_->input->close();
  return {};
}

// Until the guest knows the command by its id.
Status GuestExec::State::wait_started() {
  std::unique_lock lock(sync->mutex);
  bool known =
      sync->changed.wait_for(lock, control_limit, [this] { return exec->started() || exec->done(); });
  if (!known) return fail(ErrorCode::deadline_exceeded, "the guest did not start the command in time");
  if (!exec->started()) return fail(channel->error(exec->status()));
  return {};
}

Status GuestExec::signal(int number, SignalScope scope) {
  ANCHORHOLD_CHECK(state_->wait_started());
  wire::SignalExecRequest request;
  request.set_exec_id(state_->id.value());
  request.set_signal(number);
  request.set_scope(to_wire(scope));
  ANCHORHOLD_CHECK(call(*state_->channel, &wire::Guest::Stub::SignalExec, request));
  return {};
}

Status GuestExec::resize(TerminalSize size) {
  ANCHORHOLD_CHECK(state_->wait_started());
  wire::ResizeTerminalRequest request;
  request.set_exec_id(state_->id.value());
  request.mutable_size()->set_rows(size.rows);
  request.mutable_size()->set_columns(size.columns);
  ANCHORHOLD_CHECK(call(*state_->channel, &wire::Guest::Stub::ResizeTerminal, request));
  return {};
}

Status GuestExec::kill() {
  ANCHORHOLD_CHECK(state_->wait_started());
  {
    std::lock_guard lock(state_->sync->mutex);
    if (state_->exec->done()) return {};
  }
  wire::KillExecRequest request;
  request.set_exec_id(state_->id.value());
  ANCHORHOLD_CHECK(call(*state_->channel, &wire::Guest::Stub::KillExec, request));
  return {};
}

Result<ExecStatus> GuestExec::wait(std::stop_token stop) {
  auto& sync = *state_->sync;
  auto& exec = *state_->exec;
  auto over = [&] { return exec.result().has_value() || exec.done(); };
  std::unique_lock lock(sync.mutex);
  bool ended = state_->answer_due ? sync.changed.wait_until(lock, stop, *state_->answer_due, over)
                                  : sync.changed.wait(lock, stop, over);
  if (!ended) {
    lock.unlock();
    Status killed = kill();
    lock.lock();
    if (!killed || !sync.changed.wait_for(lock, kill_limit, over)) {
      lock.unlock();
      exec.cancel();
      if (!killed) return fail(with_context(killed.error(), "killing the command"));
      return fail(ErrorCode::deadline_exceeded,
                  "the guest does not answer: the command's end was not reported");
    }
  }
  if (exec.result()) return *exec.result();
  return fail(state_->channel->error(exec.status()));
}

Result<std::unique_ptr<GuestExec>> GuestClient::start(const ExecSpec& spec) {
  wire::ExecRequest request = ANCHORHOLD_TRY(to_wire(spec));
  auto state = std::make_unique<GuestExec::State>();
  state->channel = state_->channel;
  state->id = ExecId("h-" + random_hex(8));
  request.set_exec_id(state->id.value());
  state->has_input = spec.terminal.has_value() || spec.input == ExecSpec::Input::pipe;
  if (spec.time_limit.count() > 0)
    state->answer_due = std::chrono::steady_clock::now() + spec.time_limit + beyond_time_limit;
  if (auto refused = refuse_too_long(request)) {
    state->exec = ExecCall::refused(state->sync, std::move(*refused));
    state->has_input = false;
    return std::unique_ptr<GuestExec>(new GuestExec(std::move(state)));
  }
  bool errors_apart = !spec.terminal && spec.errors == ExecSpec::Errors::apart;
  state->exec = ExecCall::start(*state->channel, state->sync, std::move(request));
  state->outputs[0] =
      OutputCall::start(*state->channel, state->sync, state->id.value(), OutputStream::standard_output);
  if (errors_apart)
    state->outputs[1] =
        OutputCall::start(*state->channel, state->sync, state->id.value(), OutputStream::standard_error);
  state->exec->when_done([state = state.get()] {
    // A command that the guest refused has no outputs to wait for.
    if (state->exec->started()) return;
    for (auto& output : state->outputs)
      if (output) output->abandon();
  });
  return std::unique_ptr<GuestExec>(new GuestExec(std::move(state)));
}

namespace {

void drain(GuestExec& exec, OutputStream stream, const OutputSink& sink, std::stop_token stop) {
  for (;;) {
    auto bytes = exec.read(stream, stop);
    if (!bytes || !*bytes) return;
    if (sink) sink(**bytes);
  }
}

}  // namespace

Result<ExecStatus> GuestClient::run(const ExecSpec& spec, const OutputSinks& sinks, std::string_view input,
                                    std::stop_token stop) {
  ExecSpec with_input = spec;
  if (!input.empty()) with_input.input = ExecSpec::Input::pipe;
  auto exec = ANCHORHOLD_TRY(start(with_input));
  std::jthread errors;
  if (!spec.terminal && spec.errors == ExecSpec::Errors::apart)
    errors = std::jthread([&] { drain(*exec, OutputStream::standard_error, sinks.standard_error, {}); });
  std::jthread feeder;
  std::stop_source feeder_stop;
  if (!input.empty()) {
    feeder = std::jthread([&exec, input, token = feeder_stop.get_token()] {
      // A command that stops reading is no error here.
      if (exec->write_input(input, token)) (void)exec->close_input();
    });
  } else {
    (void)exec->close_input();
  }
  drain(*exec, OutputStream::standard_output, sinks.standard_output, stop);
  auto status = exec->wait(stop);
  feeder_stop.request_stop();
  return status;
}

}  // namespace anchorhold::session
