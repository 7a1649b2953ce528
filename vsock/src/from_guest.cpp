// What the guest sends: packets of the tx ring. Nothing in them is believed; a ring or packet that no driver
// would make ends the device, a stream that breaks its own rules is reset.
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>

#include "stream_device_core.h"

namespace anchorhold::vsock {
namespace {

constexpr int chains_a_turn = 256;

}  // namespace

void StreamDeviceCore::take_from_guest() {
  if (!ring_ready_[from_guest]) return;
  auto& queue = back_end_->queue(from_guest);
  bool ended = false;
  // A guest that does not take its answers gets to send nothing more, so that they cannot pile up.
  for (int left = chains_a_turn; left > 0 && replies_.size() < max_replies; --left) {
    auto& chain = chains_[batch_count_];
    auto popped = queue.pop(chain);
    if (!popped) return fault(std::move(popped).error());
    if (*popped) {
      if (!take(chain)) return;
      continue;
    }
    if (!flush_batch()) return;
    ended = !queue.rearm_kicks();
    if (ended) break;
  }
  if (!flush_batch()) return;
  if (ended) ring_ready_[from_guest] = false;
  queue.notify();
}

bool StreamDeviceCore::take(DescriptorChain& chain) {
  PacketHeader header;
  if (!chain.writable.empty() || chain.readable_bytes < sizeof header)
    return fault(fmt::format("a packet of {} bytes", chain.readable_bytes)), false;
  copy_from(chain.readable, 0, std::as_writable_bytes(std::span(&header, 1)));
  std::uint32_t length = header.length;
  if (length > max_packet_payload || length > chain.readable_bytes - sizeof header)
    return fault(fmt::format("a payload of {} bytes in a packet of {}", length, chain.readable_bytes)), false;
  bool for_us = header.source_cid == guest_cid_ && header.destination_cid == host_cid;
  Stream* stream = for_us && header.type == type_stream
                       ? find(StreamKey{header.destination_port, header.source_port}.value())
                       : nullptr;
  if (stream) stream->learn_credit(header);
  if (stream && header.operation == operation::data && stream->state != Stream::State::requesting &&
      stream->guest_sends)
    return add_to_batch(*stream, chain, length);

  // Everything else keeps its place behind the data before it.
  DescriptorChain& own = single_;
  std::swap(own, chain);
  if (!flush_batch()) return false;
  back_end_->queue(from_guest).push(own, 0);
  // The flush may have ended the stream.
  if (stream) stream = find(StreamKey{header.destination_port, header.source_port}.value());
  if (!for_us) {
    ++statistics_.dropped_packets;
  } else if (header.type != type_stream) {
    ++statistics_.dropped_packets;
    refuse(header);
  } else if (header.operation == operation::request) {
    take_request(header);
  } else if (!stream) {
    if (header.operation != operation::reset) refuse(header);
  } else {
    switch (header.operation) {
      case operation::response:
        take_response(*stream);
        break;
      case operation::reset:
        take_reset(*stream);
        break;
      case operation::shutdown:
        take_shutdown(*stream, header.flags);
        break;
      case operation::credit_update:
        settle(*stream);
        break;
      case operation::credit_request:
        stream->notices |= notice::credit_update;
        enqueue(*stream);
        break;
      default:  // unknown, or data where none may be
        ++statistics_.resets;
        reset(*stream, true);
    }
  }
  return true;
}

void StreamDeviceCore::refuse(const PacketHeader& header) {
  PacketHeader reply{};
  reply.source_cid = host_cid;
  reply.destination_cid = guest_cid_;
  reply.source_port = header.destination_port;
  reply.destination_port = header.source_port;
  reply.type = header.type;
  reply.operation = operation::reset;
  replies_.push_back(reply);
}

void StreamDeviceCore::take_request(const PacketHeader& header) {
  // What the host said before the guest dialled holds for it: which ports are open.
  control_ready();
  StreamKey key{header.destination_port, header.source_port};
  if (Stream* existing = find(key.value())) {
    // The guest has forgotten its old stream, or never had one to begin with.
    if (existing->state != Stream::State::lingering) {
      ++statistics_.resets;
      return reset(*existing, true);
    }
    remove(*existing);
  }
  auto listening = listening_.find(key.host_port);
  if (listening == listening_.end()) {
    report_refused(key.host_port);
    return refuse(header);
  }
  Stream* stream = add(key, listening->second != 0 ? Stream::Kind::calls : Stream::Kind::bytes);
  if (!stream) {
    report_full(key.host_port);
    return refuse(header);
  }
  stream->learn_credit(header);
  if (listening->second != 0) stream->guard.emplace(listening->second);
  ControlMessage message;
  message.type = ControlMessage::Type::accepted;
  message.port = key.host_port;
  message.values[0] = key.guest_port;
  if (!bridge(*stream, message))
    return reset(*stream, true);  // out of descriptors, or the host does not keep up
  ++statistics_.accepted;
  stream->notices |= notice::response;
  enqueue(*stream);
}

void StreamDeviceCore::report_full(std::uint32_t port) {
  ++statistics_.refused;
  // Once for as long as it stays so.
  if (std::exchange(told_full_, true)) return;
  ControlMessage message;
  message.type = ControlMessage::Type::violated;
  message.port = port;
  message.set_text("more streams at a time than there may be; further ones are refused");
  (void)send_control(control_.get(), message);
}

void StreamDeviceCore::take_response(Stream& stream) {
  if (stream.state != Stream::State::requesting || (stream.notices & notice::request)) {
    ++statistics_.resets;
    return reset(stream, true);
  }
  ControlMessage message;
  message.type = ControlMessage::Type::dialed;
  message.id = stream.dial_id;
  if (!bridge(stream, message)) return reset(stream, true, "the host has no room for another stream");
  ++statistics_.dialed;
  settle(stream);
}

void StreamDeviceCore::take_shutdown(Stream& stream, std::uint32_t flags) {
  if (stream.state == Stream::State::requesting) return reset(stream, true);
  if (flags & shutdown_send) stream.guest_sends = false;
  if ((flags & shutdown_receive) && std::exchange(stream.guest_receives, false)) {
    // The host's writers learn it as EPIPE; what they wrote before is read by nobody.
    if (stream.socket) ::shutdown(stream.socket.get(), SHUT_RD);
    stream.host_sends = false;
    stream.shutdown_told |= shutdown_send;
  }
  settle(stream);
}

void StreamDeviceCore::take_reset(Stream& stream) {
  // What the guest sent before it closed in order still reaches the host; the guest's own name for it is free
  // again.
  if (!stream.guest_sends && !stream.backlog.empty()) {
    auto node = streams_.extract(stream.key.value());
    orphans_[&stream] = std::move(node.mapped());
    return;
  }
  reset(stream, false);
}

bool StreamDeviceCore::add_to_batch(Stream& stream, DescriptorChain& chain, std::uint32_t length) {
  const auto key = stream.key.value();
  bool full = batch_bytes_ + length > limits_.stream_buffer ||
              segments_.size() + chain.readable.size() > batch_segments;
  if (batch_count_ > 0 && (batch_stream_ != &stream || full)) {
    std::swap(chain, single_);
    if (!flush_batch()) return false;
    std::swap(chains_[0], single_);
    if (!find(key)) {  // it ended in the flush
      back_end_->queue(from_guest).push(chains_[0], 0);
      return true;
    }
  }
  auto& own = chains_[batch_count_];
  if (!stream.within_credit(static_cast<std::uint32_t>(batch_bytes_) + length)) {
    // It sends more than it was told there is room for.
    std::swap(own, single_);
    if (!flush_batch()) return false;
    back_end_->queue(from_guest).push(single_, 0);
    ++statistics_.resets;
    if (Stream* left = find(key)) reset(*left, true);
    return true;
  }
  slice(own.readable, sizeof(PacketHeader), length, segments_);
  batch_stream_ = &stream;
  batch_bytes_ += length;
  ++batch_count_;
  return batch_count_ < batch_chains || flush_batch();
}

bool StreamDeviceCore::flush_batch() {
  if (batch_count_ == 0) return true;
  Stream& stream = *batch_stream_;
  std::size_t count = std::exchange(batch_count_, 0);
  std::size_t bytes = std::exchange(batch_bytes_, 0);
  batch_stream_ = nullptr;
  bool passed = !stream.guard || pass_guard(stream, bytes);
  bool delivered = !passed || stream.deliver(segments_, bytes);
  segments_.clear();
  if (!delivered) return fault("its memory is gone"), false;
  statistics_.bytes_from_guest += bytes;
  auto& queue = back_end_->queue(from_guest);
  for (std::size_t i = 0; i < count; ++i) queue.push(chains_[i], 0);
  queue.notify();
  if (!passed) {
    ++statistics_.resets;
    reset(stream, true);
    return true;
  }
  announce_if_due(stream);
  settle(stream);
  return true;
}

bool StreamDeviceCore::pass_guard(Stream& stream, std::size_t bytes) {
  // What was looked at must be what is passed on: a copy, since the guest can write to its own memory
  // meanwhile.
  inspected_.resize(bytes);
  copy_from(segments_, 0, inspected_);
  segments_.assign(1, iovec{inspected_.data(), bytes});
  std::string wrong = stream.guard->inspect(inspected_);
  if (wrong.empty()) return true;
  ControlMessage message;
  message.type = ControlMessage::Type::violated;
  message.port = stream.key.host_port;
  message.set_text(wrong);
  (void)send_control(control_.get(), message);
  return false;
}

void StreamDeviceCore::announce_if_due(Stream& stream) {
  if (stream.state != Stream::State::open || !stream.guest_sends) return;
  grow_if_used(stream);
  if (stream.forwarded - stream.announced < stream.buffer_size / 4) return;
  stream.notices |= notice::credit_update;
  enqueue(stream);
}

}  // namespace anchorhold::vsock
