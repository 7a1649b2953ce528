#include "stream.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

#include "vsock/virtqueue.h"

namespace anchorhold::vsock {
namespace {

constexpr std::size_t max_segments = 1024;  // IOV_MAX of Linux

// How many bytes the socket took; -1 with errno.
ssize_t send_segments(int socket, std::span<const iovec> segments) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(segments.data());
  message.msg_iovlen = std::min(segments.size(), max_segments);
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

bool no_room_now(int error) {
  return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

void Backlog::append(std::span<const iovec> segments, std::size_t offset, std::size_t capacity) {
  if (!bytes_) {
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(capacity);
    capacity_ = capacity;
    start_ = 0;
  }
  while (true) {
    std::size_t end = (start_ + size_) % capacity_;
    std::size_t room = std::min(capacity_ - end, capacity_ - size_);
    std::size_t copied = copy_from(segments, offset, std::span(bytes_.get() + end, room));
    size_ += copied;
    offset += copied;
    if (copied == 0 || size_ == capacity_) return;
  }
}

std::span<const iovec> Backlog::pieces() {
  std::size_t first = std::min(size_, capacity_ - start_);
  pieces_[0] = {bytes_.get() + start_, first};
  pieces_[1] = {bytes_.get(), size_ - first};
  return std::span(pieces_, first == size_ ? 1 : 2);
}

void Backlog::consume(std::size_t count) {
  size_ -= count;
  if (size_ == 0) return clear();
  start_ = (start_ + count) % capacity_;
}

void Backlog::clear() {
  bytes_.reset();
  size_ = start_ = capacity_ = 0;
}

bool Stream::deliver(std::span<const iovec> segments, std::size_t bytes) {
  received += static_cast<std::uint32_t>(bytes);
  std::size_t taken = 0;
  if (socket && host_receives && backlog.empty()) {
    ssize_t sent_now = send_segments(socket.get(), segments);
    if (sent_now >= 0) {
      taken = static_cast<std::size_t>(sent_now);
    } else if (errno == EFAULT) {
      return false;
    } else if (!no_room_now(errno)) {
      host_receives = false;
    }
  }
  if (!socket || !host_receives) taken = bytes;  // nobody will read it
  forwarded += static_cast<std::uint32_t>(taken);
  if (taken < bytes) {
    backlog.append(segments, taken, buffer_size);
    watch_room();
  }
  return true;
}

void Stream::drain() {
  while (!backlog.empty()) {
    ssize_t sent_now = send_segments(socket.get(), backlog.pieces());
    if (sent_now < 0 && no_room_now(errno)) break;
    if (sent_now < 0) {
      host_receives = false;
      forwarded += static_cast<std::uint32_t>(backlog.size());
      backlog.clear();
      break;
    }
    forwarded += static_cast<std::uint32_t>(sent_now);
    backlog.consume(static_cast<std::size_t>(sent_now));
  }
  watch_room();
}

void Stream::watch_room() {
  bool wanted = !backlog.empty();
  if (wanted == watching_room || !watch) return;
  watching_room = wanted;
  // Changing the events of a watched descriptor cannot fail: it is open and registered.
  (void)watch.change(ready::readable | ready::peer_done | ready::edge | (wanted ? ready::writable : 0));
}

}  // namespace anchorhold::vsock
