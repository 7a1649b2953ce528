// What the client's parts share: the channel, its end, and the way errors of gRPC become ours.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "proto/guest.grpc.pb.h"
#include "session/guest_client.h"

namespace anchorhold::session {

namespace wire = ::anchorhold::guest::v1;

struct GuestChannel {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<wire::Guest::Stub> stub;
  std::function<std::string()> lost_cause;
  UniqueFd stream;  // the same connection as the channel's, only to see its end
  mutable std::atomic<bool> broken = false;

  // Whether the stream to the guest has ended. The channel never reconnects.
  bool lost() const;
  // The guest's own answer, or "guest lost" with its cause when there is none.
  Error error(const grpc::Status& status) const;
};

// Lets a stop token cancel a call that is under way; the call's context must outlive this.
class CancelOnStop {
 public:
  CancelOnStop(std::stop_token stop, grpc::ClientContext& context)
      : callback_(std::move(stop), [&context] { context.TryCancel(); }) {}

 private:
  std::stop_callback<std::function<void()>> callback_;
};

ExecStatus from_wire(const wire::ExecStatus& status);
ExecInfo from_wire(const wire::ExecInfo& info);
wire::OutputStream to_wire(OutputStream stream);
wire::SignalExecRequest::Scope to_wire(SignalScope scope);
// invalid_argument for a spec that breaks its own rules.
Result<wire::ExecRequest> to_wire(const ExecSpec& spec);
// A command whose strings are longer than any kernel takes is not sent at all.
std::optional<ExecStatus> refuse_too_long(const wire::ExecRequest& request);

// For control calls: the guest answers them at once, so a long silence means that it is stuck.
inline constexpr std::chrono::seconds control_limit{30};

}  // namespace anchorhold::session
