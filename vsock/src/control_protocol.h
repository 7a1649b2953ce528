// What host and device say to each other on their SOCK_SEQPACKET socket: one fixed-size message a packet, one
// descriptor with some of them. Both sides come from the same build; sizes and values are checked all the
// same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::vsock {

struct ControlMessage {
  enum class Type : std::uint32_t {
    // host → device
    listen = 1,      // port, values[0]: the longest gRPC message, or 0 when it carries bytes
    unlisten,        // port
    dial,            // port, id
    cancel,          // id
    ask_statistics,  // id
    // device → host
    sealed = 32,  // the process gave up its rights; values[0]: Landlock's version
    accepted,     // port, values[0]: the guest's port; with the stream
    refused,      // port, values[0]: how many times
    dialed,       // id; with the stream
    dial_failed,  // id; text
    statistics,   // id, values in the order of VsockStatistics
    violated,     // port, text
    ended,        // code: an ErrorCode, or no_error; text
  };
  static constexpr std::uint32_t expected_magic = 0x31564841;  // "AHV1"
  static constexpr std::uint32_t no_error = ~std::uint32_t{0};

  std::uint32_t magic = expected_magic;
  Type type{};
  std::uint32_t port = 0;
  std::uint32_t code = no_error;
  std::uint64_t id = 0;
  std::array<std::uint64_t, 8> values{};
  std::array<char, 168> text_bytes{};  // ends with a zero, or is full

  void set_text(std::string_view text);
  std::string text() const;
};
static_assert(sizeof(ControlMessage) == 256);

struct ReceivedControl {
  ControlMessage message;
  UniqueFd descriptor;  // of accepted and dialed only
};

// Never blocks: resource_exhausted when the other side does not read, unavailable when it is gone.
Status send_control(int socket, const ControlMessage& message, int descriptor = -1);
// One message; nothing when there is none yet. unavailable: the other side closed.
Result<std::optional<ReceivedControl>> receive_control(int socket);

}  // namespace anchorhold::vsock
