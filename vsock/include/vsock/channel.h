// The only place that turns a stream's descriptor into gRPC. A stream carries exactly one HTTP/2 connection;
// who speaks on it is known from where the descriptor came from, never from what is said (peer() is only
// "fd:N"). In its own target, anchorhold_vsock_channel, so that sealed programs do not contain gRPC.
#pragma once

#include <chrono>
#include <cstddef>
#include <grpcpp/grpcpp.h>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "vsock/ports.h"

namespace anchorhold::vsock {

struct ChannelLimits {
  // What the other side may send on one call before we have read it: HTTP/2's stream window, fixed, so that a
  // call whose reader stalls holds this much and no more, while the connection's own window is always given
  // back.
  std::size_t stream_window_bytes = 256 * 1024;
  // Larger messages fail their call (RESOURCE_EXHAUSTED). Data travels in chunks of at most 64 KiB.
  std::size_t max_message_bytes = max_grpc_message_bytes;
  // What a server's connections may make gRPC hold in all; beyond it calls are reset. gRPC (1.51) compares a
  // message with max_message_bytes only when the whole of it has arrived, and its clients have no such bound:
  // on the ports that carry gRPC (vsock/ports.h) the device therefore refuses a guest's message by its
  // announced length.
  std::size_t max_buffered_bytes = 128u << 20;
  // A ping when the connection was silent this long, and how long to wait for its answer. Pings are answered
  // by the transport, so a busy peer is not a dead one; a guest under emulation can be slow.
  std::chrono::milliseconds keepalive_interval = std::chrono::seconds(30);
  std::chrono::milliseconds keepalive_timeout = std::chrono::seconds(60);
};

// The client's side. The channel never reconnects: when the stream ends it is dead.
Result<std::shared_ptr<grpc::Channel>> channel_from_stream(UniqueFd stream, const ChannelLimits& limits = {});

// The server's side. First prepare the builder, then hand streams to the started server, one connection each.
void prepare_server(grpc::ServerBuilder& builder, const ChannelLimits& limits = {});
Status serve_stream(grpc::Server& server, UniqueFd stream);

// Our errors in gRPC's words, and back. The hint travels as the status' details.
grpc::Status to_grpc(const Error& error);
grpc::Status to_grpc(const Status& status);
ErrorCode code_of(grpc::StatusCode code);

}  // namespace anchorhold::vsock
