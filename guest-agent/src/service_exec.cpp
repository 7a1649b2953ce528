// The calls of one command: its life, its outputs, its input.
#include "reactor.h"

namespace anchorhold::guest {
namespace {

class ExecReactor final : public LoopReactor<grpc::ServerWriteReactor<wire::ExecEvent>> {
 public:
  ExecReactor(AgentState& state, const wire::ExecRequest& request) : LoopReactor(state), request_(request) {
    post([this] { begin(); });
  }

  void OnWriteDone(bool) override {
    post([this] {
      writing_ = false;
      advance();
    });
  }

 private:
  void begin() {
    if (finished()) return;
    if (auto status = greeted(state_); !status) return finish(to_grpc(status));
    auto plan = plan_exec(request_, state_.machinery);
    if (!plan) return finish(to_grpc(plan.error()));
    auto exec = state_.execs.add(std::move(*plan));
    if (!exec) return finish(to_grpc(exec.error()));
    exec_ = *exec;
    request_.Clear();
    Exec::Watcher watcher;
    watcher.started = [this, alive = alive()](pid_t pid) {
      if (!*alive || finished()) return;
      started_.mutable_started()->set_exec_id(exec_->id());
      started_.mutable_started()->set_pid(pid);
      have_started_ = true;
      advance();
    };
    watcher.ended = [this, alive = alive()](const wire::ExecStatus& status) {
      if (!*alive || finished()) return;
      *ended_.mutable_exited() = status;
      have_ended_ = true;
      advance();
    };
    state_.execs.start(exec_, std::move(watcher));
  }

  void advance() {
    if (writing_ || finished()) return;
    if (have_started_) {
      have_started_ = false;
      writing_ = true;
      background_started_ = exec_->background();
      StartWrite(&started_);
    } else if (background_started_) {
      finish(grpc::Status::OK);
    } else if (have_ended_) {
      have_ended_ = false;
      writing_ = true;
      sent_end_ = true;
      StartWrite(&ended_);
    } else if (sent_end_) {
      finish(grpc::Status::OK);
    }
  }

  void cancelled() override {
    if (exec_ && !background_started_)
      exec_->kill(wire::ExecStatus::CAUSE_KILLED, "the call that started it has ended");
  }

  wire::ExecRequest request_;
  std::shared_ptr<guest::Exec> exec_;
  wire::ExecEvent started_;
  wire::ExecEvent ended_;
  bool writing_ = false;
  bool have_started_ = false;
  bool have_ended_ = false;
  bool sent_end_ = false;
  bool background_started_ = false;
};

// One chunk is on its way at a time; the next is read from the command only when gRPC has taken it, which it
// does when the client's flow-control window has room.
class OutputReactor final : public LoopReactor<grpc::ServerWriteReactor<wire::OutputChunk>>,
                            public Output::Reader {
 public:
  OutputReactor(AgentState& state, const wire::ReadOutputRequest& request)
      : LoopReactor(state), request_(request) {
    post([this] { begin(); });
  }

  void OnWriteDone(bool ok) override {
    post([this, ok] {
      if (finished()) return;
      if (!ok) return finish(grpc::Status(grpc::StatusCode::CANCELLED, "the reader is gone"));
      if (ending_) return finish(grpc::Status::OK);
      exec_->output(request_.stream())->ready(this);
    });
  }

  void chunk(std::string data, std::uint64_t offset, bool more) override {
    chunk_.set_data(std::move(data));
    chunk_.set_offset(offset);
    // With the hint gRPC asks for the next message when this one begins to leave, not when it has left. It
    // would also keep a small message back to wait for more; a full chunk is larger than what it keeps (64
    // KiB).
    grpc::WriteOptions options;
    if (more) options.set_buffer_hint();
    StartWrite(&chunk_, options);
  }
  void end(bool at_end, std::uint64_t offset) override {
    attached_ = false;
    if (!exec_->background() || !at_end) return finish(grpc::Status::OK);
    chunk_.Clear();
    chunk_.set_offset(offset);
    chunk_.set_at_end(true);
    ending_ = true;
    StartWrite(&chunk_);
  }

 private:
  void begin() {
    if (finished()) return;
    if (auto status = greeted(state_); !status) return finish(to_grpc(status));
    auto known = [this, alive = alive()](std::shared_ptr<guest::Exec> exec) {
      if (*alive && !finished()) attach(std::move(exec));
    };
    if (request_.await_start()) return state_.execs.when_known(request_.exec_id(), known);
    auto exec = state_.execs.find(request_.exec_id());
    if (!exec) return finish(to_grpc(exec.error()));
    attach(*exec);
  }

  void attach(std::shared_ptr<guest::Exec> exec) {
    if (!exec) return finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no command " + request_.exec_id()));
    exec_ = std::move(exec);
    Output* output = exec_->output(request_.stream());
    if (output == nullptr) return finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "which output?"));
    auto status = output->attach(this, request_.from_offset(), request_.follow());
    if (!status) return finish(to_grpc(status));
    attached_ = true;
    output->ready(this);
  }

  void finishing() override {
    if (attached_) exec_->output(request_.stream())->detach(this);
    attached_ = false;
  }

  wire::ReadOutputRequest request_;
  std::shared_ptr<guest::Exec> exec_;
  wire::OutputChunk chunk_;
  bool attached_ = false;
  bool ending_ = false;
};

// One chunk is read from the call at a time; the next when the command has taken the last.
class InputReactor final : public LoopReactor<grpc::ServerReadReactor<wire::InputChunk>> {
 public:
  InputReactor(AgentState& state, wire::WriteInputReply* reply) : LoopReactor(state), reply_(reply) {
    StartRead(&chunk_);
  }

  void OnReadDone(bool ok) override {
    post([this, ok] {
      if (finished()) return;
      if (ok)
        take();
      else
        end_of_input();
    });
  }

 private:
  Input* input() { return exec_ ? exec_->input() : nullptr; }

  void take() {
    if (exec_) return write();
    if (auto status = greeted(state_); !status) return finish(to_grpc(status));
    auto known = [this, alive = alive()](std::shared_ptr<guest::Exec> exec) {
      if (*alive && !finished()) begin(std::move(exec));
    };
    if (chunk_.await_start()) return state_.execs.when_known(chunk_.exec_id(), known);
    auto exec = state_.execs.find(chunk_.exec_id());
    if (!exec) return finish(to_grpc(exec.error()));
    begin(*exec);
  }

  void begin(std::shared_ptr<guest::Exec> exec) {
    if (!exec) return finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no command " + chunk_.exec_id()));
    exec_ = std::move(exec);
    if (input() == nullptr) {
      if (exec_->ended()) return closed_by_command();
      return finish(
          grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "the command was started without an input"));
    }
    input()->on_closed_by_command([this, alive = alive()] {
      if (*alive && !finished()) closed_by_command();
    });
    if (!finished()) write();
  }

  void write() {
    if (chunk_.data().size() > chunk_bytes)
      return finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a chunk has at most 64 KiB"));
    if (input() == nullptr || !input()->open()) return closed_by_command();
    std::size_t size = chunk_.data().size();
    if (size == 0) return StartRead(&chunk_);
    input()->write(std::move(*chunk_.mutable_data()), [this, alive = alive(), size](Input::Outcome outcome) {
      if (!*alive || finished()) return;
      if (outcome == Input::Outcome::closed_by_command) return closed_by_command();
      reply_->set_written_bytes(reply_->written_bytes() + size);
      StartRead(&chunk_);
    });
  }

  void closed_by_command() {
    reply_->set_closed_by_command(true);
    finish(grpc::Status::OK);
  }

  void end_of_input() {
    if (input() != nullptr) input()->close();
    finish(grpc::Status::OK);
  }

  // A writer that vanished has said all it will say.
  void finishing() override {
    if (input() != nullptr) input()->on_closed_by_command(nullptr);
  }
  void cancelled() override {
    if (input() != nullptr) input()->close();
  }

  wire::WriteInputReply* reply_;
  wire::InputChunk chunk_;
  std::shared_ptr<guest::Exec> exec_;
};

}  // namespace

grpc::ServerWriteReactor<wire::ExecEvent>* GuestService::Exec(grpc::CallbackServerContext*,
                                                              const wire::ExecRequest* request) {
  return new ExecReactor(state_, *request);
}

grpc::ServerWriteReactor<wire::OutputChunk>* GuestService::ReadOutput(
    grpc::CallbackServerContext*, const wire::ReadOutputRequest* request) {
  return new OutputReactor(state_, *request);
}

grpc::ServerReadReactor<wire::InputChunk>* GuestService::WriteInput(grpc::CallbackServerContext*,
                                                                    wire::WriteInputReply* reply) {
  return new InputReactor(state_, reply);
}

}  // namespace anchorhold::guest
