// The vsock ports of the project. Host ports: the guest dials them; only those the host opened for this guest
// exist. Guest ports: the host dials them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anchorhold::vsock {

inline constexpr std::uint32_t host_cid = 2;  // VMADDR_CID_HOST, vsock(7)

namespace host_port {
inline constexpr std::uint32_t agent =
    1024;  // the guest agent dials it once it is ready, and serves gRPC on the stream
inline constexpr std::uint32_t egress = 1080;  // proxy connections out of the guest
}  // namespace host_port

// Ports that carry gRPC: on their streams the device refuses any message that the guest announces to be
// longer, or compressed, before the host sees a byte of it.
inline constexpr bool carries_grpc(std::uint32_t port_of_host) {
  return port_of_host == host_port::agent;
}
inline constexpr std::size_t max_grpc_message_bytes = 4u << 20;

namespace guest_port {
inline constexpr std::uint32_t agent = 1024;  // the guest agent serves gRPC on streams the host dials, too
}  // namespace guest_port

}  // namespace anchorhold::vsock
