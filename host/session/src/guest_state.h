// The insides of GuestClient and GuestExec, and the one way a control call is made.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "guest_calls.h"

namespace anchorhold::session {

struct GuestClient::State {
  std::shared_ptr<GuestChannel> channel;
  GuestInfo info;
};

struct GuestExec::State {
  // Ends the calls and waits until gRPC has let go of them, which cancelling makes soon.
  ~State();

  std::shared_ptr<GuestChannel> channel;
  std::shared_ptr<CallSync> sync = std::make_shared<CallSync>();
  ExecId id;
  bool has_input = false;
  // Past this the guest is held to be stuck: it has not ended a command at its time limit.
  std::optional<std::chrono::steady_clock::time_point> answer_due;
  std::unique_ptr<ExecCall> exec;
  std::unique_ptr<OutputCall> outputs[2];  // null: this command has no such output
  int next_output = 0;                     // for read_any(); under sync->mutex
  std::mutex input_mutex;                  // one writer at a time; before sync->mutex
  std::unique_ptr<InputCall> input;        // made at the first use

  // Until the guest knows the command by its id.
  Status wait_started();
  // What a finished output call means to its reader; sync->mutex is held.
  Status end_of(const OutputCall& output) const;
};

// A question and its answer; with a deadline, because the guest answers control calls at once.
template <typename Request, typename Reply>
Result<Reply> call(const GuestChannel& channel,
                   grpc::Status (wire::Guest::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                   const Request& request, std::optional<std::chrono::milliseconds> limit = control_limit,
                   std::stop_token stop = {}) {
  grpc::ClientContext context;
  if (limit) context.set_deadline(std::chrono::system_clock::now() + *limit);
  CancelOnStop cancel(std::move(stop), context);
  Reply reply;
  grpc::Status status = (channel.stub.get()->*method)(&context, request, &reply);
  if (!status.ok()) return fail(channel.error(status));
  return reply;
}

}  // namespace anchorhold::session
