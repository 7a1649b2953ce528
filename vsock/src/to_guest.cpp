// What goes to the guest: buffers of the rx ring are filled in turn for every stream that has something, many
// buffers by one read of the socket.
#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <sys/uio.h>

#include "stream_device_core.h"

namespace anchorhold::vsock {
namespace {

constexpr std::size_t bytes_a_read = 256u << 10;
constexpr int serves_a_turn = 64;

}  // namespace

void StreamDeviceCore::give_to_guest() {
  if (!ring_ready_[to_guest]) return;
  auto& queue = back_end_->queue(to_guest);
  for (int left = serves_a_turn; left > 0 && (!replies_.empty() || !ready_.empty()); --left) {
    Progress progress;
    if (!replies_.empty()) {
      progress = put(replies_.front());
      if (ended_) return;
      if (progress == Progress::done) replies_.pop_front();
    } else {
      auto key = ready_.front();
      Stream* stream = find(key);
      progress = stream ? serve(*stream) : Progress::gone;
      if (ended_) return;
      if (progress != Progress::no_buffers) ready_.pop_front();
      if (progress == Progress::more) ready_.push_back(key);
    }
    if (progress == Progress::no_buffers) {
      queue.notify();
      if (!queue.rearm_kicks()) {
        ring_ready_[to_guest] = false;
        return;
      }
    }
  }
  queue.notify();
}

StreamDeviceCore::Progress StreamDeviceCore::serve(Stream& stream) {
  if (auto progress = send_notices(stream); progress != Progress::done) return progress;
  if (stream.data_due()) {
    auto progress = send_data(stream);
    if (progress == Progress::no_buffers || progress == Progress::gone) return progress;
  }
  if (stream.shutdown_due()) {
    auto flags = stream.shutdown_flags();
    if (auto progress = put(header_for(stream, operation::shutdown, 0, flags)); progress != Progress::done)
      return progress;
    stream.shutdown_told |= flags;
  }
  if (stream.data_due()) return Progress::more;
  stream.queued = false;
  settle(stream);
  return Progress::done;
}

StreamDeviceCore::Progress StreamDeviceCore::send_notices(Stream& stream) {
  struct Kind {
    unsigned notice;
    std::uint16_t operation;
  };
  static constexpr Kind kinds[] = {{notice::request, operation::request},
                                   {notice::response, operation::response},
                                   {notice::credit_update, operation::credit_update},
                                   {notice::credit_request, operation::credit_request}};
  for (const auto& kind : kinds) {
    if (!(stream.notices & kind.notice)) continue;
    if (auto progress = put(header_for(stream, kind.operation)); progress != Progress::done) return progress;
    stream.notices &= ~kind.notice;
  }
  return Progress::done;
}

PacketHeader StreamDeviceCore::header_for(Stream& stream, std::uint16_t operation, std::uint32_t length,
                                          std::uint32_t flags) {
  PacketHeader header{};
  header.source_cid = host_cid;
  header.destination_cid = guest_cid_;
  header.source_port = stream.key.host_port;
  header.destination_port = stream.key.guest_port;
  header.length = length;
  header.type = type_stream;
  header.operation = operation;
  header.flags = flags;
  header.buffer_size = stream.buffer_size;
  header.forwarded = stream.forwarded;
  return header;
}

bool StreamDeviceCore::take_buffer(DescriptorChain& chain, bool& none) {
  auto popped = back_end_->queue(to_guest).pop(chain);
  if (!popped) return fault(std::move(popped).error()), false;
  none = !*popped;
  if (none) return true;
  if (chain.readable.empty() && chain.writable_bytes > sizeof(PacketHeader)) return true;
  fault(fmt::format("a receive buffer of {} bytes", chain.writable_bytes));
  return false;
}

StreamDeviceCore::Progress StreamDeviceCore::put(const PacketHeader& header) {
  bool none;
  if (!take_buffer(single_, none)) return Progress::gone;
  if (none) return Progress::no_buffers;
  copy_to(single_.writable, 0, std::as_bytes(std::span(&header, 1)));
  back_end_->queue(to_guest).push(single_, sizeof header);
  if (Stream* stream = find(StreamKey{header.source_port, header.destination_port}.value()))
    stream->announced = header.forwarded;
  return Progress::done;
}

StreamDeviceCore::Progress StreamDeviceCore::send_data(Stream& stream) {
  const std::size_t allowed = std::min<std::size_t>(stream.credit(), bytes_a_read);
  if (allowed == 0) {
    // Once for each time the credit ran out; the answer brings the stream back.
    stream.credit_requested = true;
    stream.notices |= notice::credit_request;
    return send_notices(stream);
  }
  auto& queue = back_end_->queue(to_guest);
  std::size_t count = 0, total = 0;
  segments_.clear();
  while (total < allowed && count < std::min<std::size_t>(stream.appetite, batch_chains) &&
         segments_.size() < batch_segments) {
    auto& chain = chains_[count];
    bool none;
    if (!take_buffer(chain, none)) return Progress::gone;
    if (none) break;
    std::size_t room = std::min(
        {chain.writable_bytes - sizeof(PacketHeader), std::size_t{max_packet_payload}, allowed - total});
    slice(chain.writable, sizeof(PacketHeader), room, segments_);
    rooms_[count++] = static_cast<std::uint32_t>(room);
    total += room;
  }
  if (count == 0) return Progress::no_buffers;
  ssize_t got;
  do {
    got = readv(stream.socket.get(), segments_.data(), static_cast<int>(segments_.size()));
  } while (got < 0 && errno == EINTR);
  int error = errno;
  segments_.clear();
  if (got < 0) {
    queue.unpop(static_cast<std::uint16_t>(count));
    if (error == EFAULT) return fault("its memory is gone"), Progress::gone;
    stream.readable = false;
    if (error == EAGAIN) return Progress::done;
    reset(stream, true);  // the host closed without reading what the guest had sent
    return Progress::gone;
  }
  std::size_t used = 0;
  for (auto left = static_cast<std::size_t>(got); left > 0; ++used) {
    auto length = static_cast<std::uint32_t>(std::min<std::size_t>(rooms_[used], left));
    PacketHeader header = header_for(stream, operation::data, length);
    copy_to(chains_[used].writable, 0, std::as_bytes(std::span(&header, 1)));
    queue.push(chains_[used], sizeof header + length);
    left -= length;
  }
  queue.unpop(static_cast<std::uint16_t>(count - used));
  queue.notify();
  stream.announced = stream.forwarded;
  stream.sent += static_cast<std::uint32_t>(got);
  statistics_.bytes_to_guest += static_cast<std::uint64_t>(got);
  bool filled = static_cast<std::size_t>(got) == total;
  // A short read emptied the socket: the next byte, or its end, is a new event. Unless the end was told
  // before.
  if (!filled && !stream.end_told) stream.readable = false;
  if (got == 0) stream.host_sends = false;
  stream.appetite = filled ? std::min<std::uint32_t>(stream.appetite * 2, batch_chains) : 4;
  return Progress::done;
}

}  // namespace anchorhold::vsock
