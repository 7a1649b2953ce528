// The messages of vhost-user (QEMU docs/interop/vhost-user.rst) that our back-end takes part in. All are in
// the machine's own byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::vsock::vhost_user {

enum Request : std::uint32_t {
  get_features = 1,
  set_features = 2,
  set_owner = 3,
  set_mem_table = 5,
  set_vring_num = 8,
  set_vring_addr = 9,
  set_vring_base = 10,
  get_vring_base = 11,
  set_vring_kick = 12,
  set_vring_call = 13,
  set_vring_err = 14,
  get_protocol_features = 15,
  set_protocol_features = 16,
  get_queue_num = 17,
  set_vring_enable = 18,
  get_config = 24,
};
std::string name(Request request);

struct Header {
  Request request;
  std::uint32_t flags;
  std::uint32_t size;  // of the payload
};
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t flag_version_mask = 3;
inline constexpr std::uint32_t flag_reply = 1 << 2;
inline constexpr std::uint32_t flag_need_reply = 1 << 3;

// The longest that is offered is a memory table of eight regions, 264 bytes; a configuration space fits as
// well.
inline constexpr std::uint32_t max_payload = 512;

inline constexpr std::uint64_t feature_protocol_features = 1ull << 30;
inline constexpr std::uint64_t protocol_multiqueue = 1ull << 0;
inline constexpr std::uint64_t protocol_reply_ack = 1ull << 3;
inline constexpr std::uint64_t protocol_config = 1ull << 9;
// What every device of ours offers.
inline constexpr std::uint64_t protocol_always = protocol_multiqueue | protocol_reply_ack;

struct MemoryTableHeader {
  std::uint32_t count;
  std::uint32_t padding;
};

struct RingState {
  std::uint32_t index;
  std::uint32_t value;
};

struct RingAddress {
  std::uint32_t index;
  std::uint32_t flags;
  std::uint64_t descriptors;
  std::uint64_t used;
  std::uint64_t available;
  std::uint64_t log;
};

inline constexpr std::uint64_t ring_index_mask = 0xff;
inline constexpr std::uint64_t ring_no_descriptor = 1ull << 8;

struct ConfigHeader {
  std::uint32_t offset;
  std::uint32_t size;
  std::uint32_t flags;
};

tl::unexpected<Error> malformed(std::string what);

// Takes messages from a stream as they come, whole, with their descriptors. Header and payload are read
// apart, once for each time the socket is ready, so that reading never blocks.
class MessageReader {
 public:
  enum class Got { part, whole, end };
  // `end`: the other side closed, between messages. The flags and the length of a whole message are right.
  Result<Got> receive(int socket);
  void clear();

  Header header() const;
  std::span<const std::byte> payload() const { return std::span(bytes_).subspan(sizeof(Header)); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<UniqueFd>& descriptors() { return descriptors_; }
  // The payload as exactly one T.
  template <typename T>
  Result<T> as() const {
    if (payload().size() != sizeof(T))
      return malformed(name(header().request) + " with " + std::to_string(payload().size()) +
                       " bytes of payload");
    T value;
    std::memcpy(&value, payload().data(), sizeof value);
    return value;
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<UniqueFd> descriptors_;
};

// Sent at once or not at all (send_message_now): replies are few and small, and who lets a socket fill with
// them does not follow the protocol.
std::vector<std::byte> encode(Request request, std::uint32_t flags, std::span<const std::byte> payload);

}  // namespace anchorhold::vsock::vhost_user
