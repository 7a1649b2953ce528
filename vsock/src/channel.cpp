#include "vsock/channel.h"

#include <algorithm>
#include <climits>
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

namespace anchorhold::vsock {
namespace {

int milliseconds(std::chrono::milliseconds time) {
  return static_cast<int>(std::min<std::chrono::milliseconds::rep>(time.count(), INT_MAX));
}

int bytes(std::size_t count) {
  return static_cast<int>(std::min<std::size_t>(count, INT_MAX));
}

// A compressed message counts by its compressed size, and grows without a bound when it is unpacked: none is
// accepted.
constexpr int identity_only = 1 << GRPC_COMPRESS_NONE;

// gRPC takes the descriptor's number and closes it itself; it must be a connected, non-blocking stream
// socket.
Status check_stream(const UniqueFd& stream) {
  int type = 0;
  socklen_t size = sizeof type;
  if (!stream || getsockopt(stream.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return fail(ErrorCode::invalid_argument, "a gRPC connection needs a stream socket");
  return set_nonblocking(stream.get());
}

// What both ends of a connection agree on, set by `set(name, value)`.
template <typename Set>
void set_for_both_ends(const ChannelLimits& limits, Set set) {
  // Without the probe gRPC does not grow the window by itself.
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, bytes(limits.stream_window_bytes));
  set(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(limits.keepalive_interval));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(limits.keepalive_timeout));
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, identity_only);
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

// One for each connection, so that one guest cannot use up what another needs.
template <typename Options>
void set_quota(const ChannelLimits& limits, Options& options) {
  grpc::ResourceQuota quota;
  quota.Resize(limits.max_buffered_bytes);
  options.SetResourceQuota(quota);
}

}  // namespace

Result<std::shared_ptr<grpc::Channel>> channel_from_stream(UniqueFd stream, const ChannelLimits& limits) {
  ANCHORHOLD_CHECK(check_stream(stream));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(bytes(limits.max_message_bytes));
  arguments.SetMaxSendMessageSize(bytes(limits.max_message_bytes));
  set_for_both_ends(limits, [&](const char* name, int value) { arguments.SetInt(name, value); });
  set_quota(limits, arguments);
  // Two channels of one process must never share a connection: each is a guest of its own.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  auto channel = grpc::CreateCustomInsecureChannelFromFd("guest", stream.release(), arguments);
  if (!channel) return fail(ErrorCode::internal, "gRPC made no channel of the stream");
  return channel;
}

void prepare_server(grpc::ServerBuilder& builder, const ChannelLimits& limits) {
  builder.SetMaxReceiveMessageSize(bytes(limits.max_message_bytes));
  builder.SetMaxSendMessageSize(bytes(limits.max_message_bytes));
  set_for_both_ends(limits, [&](const char* name, int value) { builder.AddChannelArgument(name, value); });
  set_quota(limits, builder);
  // The client pings as the limits say, also when it has no call open; without this the server hangs up on
  // it.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             milliseconds(limits.keepalive_interval / 2));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

Status serve_stream(grpc::Server& server, UniqueFd stream) {
  ANCHORHOLD_CHECK(check_stream(stream));
  grpc::AddInsecureChannelFromFd(&server, stream.release());
  return {};
}

}  // namespace anchorhold::vsock
