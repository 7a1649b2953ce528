// Packets of virtio-vsock (virtio 1.2, section 5.10.6). Little endian, like every machine this builds for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anchorhold::vsock {

struct [[gnu::packed]] PacketHeader {
  std::uint64_t source_cid;
  std::uint64_t destination_cid;
  std::uint32_t source_port;
  std::uint32_t destination_port;
  std::uint32_t length;  // of the payload
  std::uint16_t type;
  std::uint16_t operation;
  std::uint32_t flags;
  std::uint32_t buffer_size;  // buf_alloc
  std::uint32_t forwarded;    // fwd_cnt
};
static_assert(sizeof(PacketHeader) == 44);

inline constexpr std::uint16_t type_stream = 1;

namespace operation {
inline constexpr std::uint16_t request = 1;
inline constexpr std::uint16_t response = 2;
inline constexpr std::uint16_t reset = 3;
inline constexpr std::uint16_t shutdown = 4;
inline constexpr std::uint16_t data = 5;
inline constexpr std::uint16_t credit_update = 6;
inline constexpr std::uint16_t credit_request = 7;
}  // namespace operation

// Flags of operation::shutdown: the sender of it will not receive, or not send, any more.
inline constexpr std::uint32_t shutdown_receive = 1;
inline constexpr std::uint32_t shutdown_send = 2;
inline constexpr std::uint32_t shutdown_both = 3;

// What Linux sends at most in one packet; a longer one is refused.
inline constexpr std::uint32_t max_packet_payload = 64u << 10;

}  // namespace anchorhold::vsock
