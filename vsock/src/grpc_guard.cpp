#include "grpc_guard.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::vsock {
namespace {

// RFC 9113, section 6.
constexpr unsigned frame_data = 0, frame_headers = 1, frame_rst_stream = 3;
constexpr unsigned flag_end_stream = 1, flag_padded = 8;
constexpr std::uint32_t preface_size = 24;  // "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", section 3.4
constexpr std::uint32_t prefix_size = 5;    // compressed flag and length, gRPC's PROTOCOL-HTTP2.md

}  // namespace

std::string GrpcGuard::inspect(std::span<const std::byte> bytes) {
  if (at_start_ && !bytes.empty()) {
    at_start_ = false;
    // A frame header begins with a length; one that begins like the preface would be a frame of five million
    // bytes.
    if (bytes[0] == std::byte{'P'}) preface_left_ = preface_size;
  }
  while (!bytes.empty()) {
    if (preface_left_ > 0) {
      auto part = std::min<std::size_t>(preface_left_, bytes.size());
      preface_left_ -= static_cast<std::uint32_t>(part);
      bytes = bytes.subspan(part);
    } else if (header_size_ < sizeof header_) {
      header_[header_size_++] = bytes[0];
      bytes = bytes.subspan(1);
      if (header_size_ == sizeof header_) {
        if (auto wrong = begin_frame(); !wrong.empty()) return wrong;
      }
    } else if (pad_length_due_) {
      pad_length_due_ = false;
      padding_ = std::to_integer<std::uint32_t>(bytes[0]);
      --payload_left_;
      if (padding_ > payload_left_) return "a frame with more padding than payload";
      bytes = bytes.subspan(1);
      if (payload_left_ == 0) end_frame();
    } else {
      auto part = bytes.first(std::min<std::size_t>(payload_left_, bytes.size()));
      if (is_data_ && payload_left_ > padding_) {
        part = part.first(std::min<std::size_t>(part.size(), payload_left_ - padding_));
        if (auto wrong = data(part); !wrong.empty()) return wrong;
      }
      payload_left_ -= static_cast<std::uint32_t>(part.size());
      bytes = bytes.subspan(part.size());
      if (payload_left_ == 0) end_frame();
    }
  }
  return {};
}

std::string GrpcGuard::begin_frame() {
  auto byte = [&](std::size_t at) { return std::to_integer<std::uint32_t>(header_[at]); };
  payload_left_ = byte(0) << 16 | byte(1) << 8 | byte(2);
  unsigned type = byte(3), flags = byte(4);
  call_ = (byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8)) & 0x7fffffff;
  is_data_ = type == frame_data;
  ends_call_ = type == frame_rst_stream || ((is_data_ || type == frame_headers) && (flags & flag_end_stream));
  padding_ = 0;
  pad_length_due_ = is_data_ && (flags & flag_padded);
  if (pad_length_due_ && payload_left_ == 0) return "a padded frame without a payload";
  if (payload_left_ == 0) end_frame();
  return {};
}

void GrpcGuard::end_frame() {
  header_size_ = 0;
  if (ends_call_) messages_.erase(call_);
}

std::string GrpcGuard::data(std::span<const std::byte> bytes) {
  auto [entry, added] = messages_.try_emplace(call_);
  if (added && messages_.size() > max_open_messages) return "too many messages at once";
  Message& message = entry->second;
  while (!bytes.empty()) {
    if (message.prefix < prefix_size) {
      auto value = std::to_integer<std::uint32_t>(bytes[0]);
      bytes = bytes.subspan(1);
      if (message.prefix++ == 0) {
        if (value != 0) return "a compressed message";
        continue;
      }
      message.length = message.length << 8 | value;
      if (message.prefix < prefix_size) continue;
      if (message.length > max_message_bytes_) return fmt::format("a message of {} bytes", message.length);
      message.remaining = message.length;
    } else {
      auto part = std::min<std::size_t>(message.remaining, bytes.size());
      message.remaining -= static_cast<std::uint32_t>(part);
      bytes = bytes.subspan(part);
    }
    if (message.prefix == prefix_size && message.remaining == 0) message = Message{};
  }
  if (message.prefix == 0) messages_.erase(entry);
  return {};
}

}  // namespace anchorhold::vsock
