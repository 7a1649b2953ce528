// Watches the guest's half of a gRPC connection (HTTP/2, RFC 9113; gRPC's length-prefixed messages) for the
// lengths it announces. gRPC 1.51 takes a whole message into memory before it compares its size with the
// limit, and unpacks compressed ones without any; here, in the sealed process, the announcement itself is
// refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

namespace anchorhold::vsock {

class GrpcGuard {
 public:
  explicit GrpcGuard(std::uint32_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}
  // The next bytes of the connection, in any cut. Returns what is wrong with them; empty: nothing. After that
  // the connection must end, since nothing behind it is understood any more.
  std::string inspect(std::span<const std::byte> bytes);

 private:
  // A message that has begun on a call and not ended; calls between two messages have none.
  struct Message {
    std::uint32_t prefix = 0;     // bytes of the five-byte prefix that came
    std::uint32_t length = 0;     // as far as it came
    std::uint32_t remaining = 0;  // of the message, once the prefix is whole
  };
  static constexpr std::size_t max_open_messages = 65536;

  std::string begin_frame();
  std::string data(std::span<const std::byte> bytes);
  void end_frame();

  std::uint32_t max_message_bytes_;
  bool at_start_ = true;
  std::uint32_t preface_left_ = 0;  // of a client's connection preface
  std::byte header_[9];
  std::uint32_t header_size_ = 0;
  // The frame we are in.
  std::uint32_t payload_left_ = 0;
  std::uint32_t padding_ = 0;  // at the payload's end
  bool pad_length_due_ = false;
  bool is_data_ = false;
  bool ends_call_ = false;
  std::uint32_t call_ = 0;
  std::unordered_map<std::uint32_t, Message> messages_;
};

}  // namespace anchorhold::vsock
