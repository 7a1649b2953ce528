#include "stream.h"

#include <array>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <sys/resource.h>
#include <sys/socket.h>

namespace anchorhold::egress {
namespace {

constexpr std::size_t scratch_bytes = 64 * 1024;
// A reader does not take more at once than a message needs.
constexpr std::size_t fill_bytes = 16 * 1024;
constexpr rlim_t kept_descriptors = 64;

Io failed_call(Direction direction) {
  if (errno == EAGAIN || errno == EINTR) return {Io::State::waiting, 0, direction};
  return {Io::State::failed, 0, direction};
}

}  // namespace

SocketStream::~SocketStream() {
  release_waiter();
}

void SocketStream::release_waiter() {
  if (waiter_) waiter_->release();  // which would close it as well
  waiter_.reset();
}

int SocketStream::lend() {
  release_waiter();
  return fd_.get();
}

Io SocketStream::try_read(std::span<char> buffer) {
  ssize_t count = recv(fd_.get(), buffer.data(), buffer.size(), 0);
  if (count > 0) {
    auto size = static_cast<std::size_t>(count);
    return {Io::State::done, size, Direction::read, size < buffer.size()};
  }
  return count == 0 ? Io{Io::State::end} : failed_call(Direction::read);
}

Io SocketStream::try_write(std::string_view bytes) {
  ssize_t count = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (count >= 0) return {Io::State::done, static_cast<std::size_t>(count)};
  return failed_call(Direction::write);
}

Io SocketStream::try_shutdown() {
  shutdown(fd_.get(), SHUT_WR);
  return {Io::State::done, 0};
}

Awaitable<void> SocketStream::wait(Direction direction) {
  auto type = direction == Direction::read ? asio::posix::stream_descriptor::wait_read
                                           : asio::posix::stream_descriptor::wait_write;
  if (!waiter_) waiter_.emplace(loop_, fd_.get());
  co_await waiter_->async_wait(type, asio::experimental::as_tuple(asio::use_awaitable));
}

void SocketStream::cut() {
  shutdown(fd_.get(), SHUT_RDWR);
}

bool is_kept_descriptor(int fd) {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
         static_cast<rlim_t>(fd) + kept_descriptors >= limit.rlim_cur;
}

Awaitable<Io> read_some(Stream& stream, std::span<char> buffer) {
  for (;;) {
    Io io = stream.try_read(buffer);
    if (io.state != Io::State::waiting) co_return io;
    co_await stream.wait(io.direction);
  }
}

Awaitable<bool> write_all(Stream& stream, std::string_view bytes) {
  while (!bytes.empty()) {
    Io io = stream.try_write(bytes);
    if (io.state == Io::State::waiting) {
      co_await stream.wait(io.direction);
    } else if (io.state != Io::State::done) {
      co_return false;
    } else {
      bytes.remove_prefix(io.count);
    }
  }
  co_return true;
}

Awaitable<void> shut_down(Stream& stream) {
  for (;;) {
    Io io = stream.try_shutdown();
    if (io.state != Io::State::waiting) co_return;
    co_await stream.wait(io.direction);
  }
}

std::span<char> scratch() {
  static thread_local std::array<char, scratch_bytes> buffer;
  return buffer;
}

void Reader::consume(std::size_t count) {
  begin_ += count;
  if (begin_ < buffer_.size()) return;
  begin_ = 0;
  std::string().swap(buffer_);
}

void Reader::put_back(std::string bytes) {
  bytes += this->bytes();
  buffer_ = std::move(bytes);
  begin_ = 0;
}

std::string Reader::take_all() {
  std::string all(bytes());
  consume(all.size());
  return all;
}

Awaitable<bool> Reader::fill() {
  Io io = co_await read_some(*stream_, scratch().first(fill_bytes));
  if (io.state != Io::State::done) co_return false;
  if (begin_ > 0) buffer_.erase(0, std::exchange(begin_, 0));
  buffer_.append(scratch().data(), io.count);
  co_return true;
}

}  // namespace anchorhold::egress
