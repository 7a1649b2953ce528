// A stream of bytes, as everything in the process sees it: a socket, or TLS on a stream. Reading and writing
// are tried and never wait; who wants to wait says for what, on its event loop. So an idle connection has
// no buffer of its own: what is read goes through one scratch buffer of the process.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::egress {

namespace asio = boost::asio;
template <typename T>
using Awaitable = asio::awaitable<T>;

enum class Direction { read, write };

struct Io {
  enum class State {
    done,     // count bytes, at least one
    waiting,  // nothing now; wait in `direction`
    end,      // the other side said that nothing more comes, or it is cut
    failed,
  };
  State state = State::end;
  std::size_t count = 0;
  Direction direction = Direction::read;
  bool drained = false;  // done: there was less than was asked for, so trying again at once is in vain
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual Io try_read(std::span<char> buffer) = 0;
  virtual Io try_write(std::string_view bytes) = 0;
  // Says that nothing more comes (FIN, close_notify); done with a count of 0 when it was said.
  virtual Io try_shutdown() = 0;
  virtual Awaitable<void> wait(Direction direction) = 0;
  // Ends both directions at once; whoever waits goes on and finds the end. Safe to call again, and from the
  // loop that this one belongs to while its socket is lent.
  virtual void cut() = 0;
  // The socket, for a stream of another loop; -1 when there is more to this one than its socket. Nobody waits
  // for this one until that stream is gone.
  virtual int lend() { return -1; }
};

// A connected socket, non-blocking.
class SocketStream : public Stream {
 public:
  SocketStream(asio::io_context& loop, UniqueFd fd) : fd_(std::move(fd)), loop_(loop) {}
  ~SocketStream() override;
  Io try_read(std::span<char> buffer) override;
  Io try_write(std::string_view bytes) override;
  Io try_shutdown() override;
  Awaitable<void> wait(Direction direction) override;
  void cut() override;
  int lend() override;
  int descriptor() const { return fd_.get(); }

 protected:
  void release_waiter();
  UniqueFd fd_;

 private:
  asio::io_context& loop_;
  std::optional<asio::posix::stream_descriptor> waiter_;  // once somebody has waited
};

// One whose socket another stream has lent.
class LentSocket : public SocketStream {
 public:
  LentSocket(asio::io_context& loop, int fd) : SocketStream(loop, UniqueFd(fd)) {}
  ~LentSocket() override {
    release_waiter();
    (void)fd_.release();
  }
};

// What a connection allows itself to wait. One object for each connection, looked at about once a second;
// safe from any thread.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  void in(std::chrono::milliseconds limit) {
    at_.store((Clock::now() + limit).time_since_epoch(), std::memory_order_relaxed);
  }
  bool over(Clock::time_point now) const {
    return now.time_since_epoch() >= at_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<Clock::duration> at_ = Clock::duration::max();
};

// One of the last that the process may open: those are kept for what the host passes.
bool is_kept_descriptor(int fd);

// At least one byte, or the end.
Awaitable<Io> read_some(Stream& stream, std::span<char> buffer);
// All of it, or false.
Awaitable<bool> write_all(Stream& stream, std::string_view bytes);
Awaitable<void> shut_down(Stream& stream);

// Of the thread, for one read that is used up before anything else runs on it.
std::span<char> scratch();

// What was read of a stream and not used yet. Holds memory only while it holds bytes.
class Reader {
 public:
  explicit Reader(Stream& stream) : stream_(&stream) {}
  std::string_view bytes() const { return std::string_view(buffer_).substr(begin_); }
  void consume(std::size_t count);
  void put_back(std::string bytes);
  std::string take_all();
  // More bytes than before; false at the end of the stream.
  Awaitable<bool> fill();
  Stream& stream() { return *stream_; }

 private:
  Stream* stream_;
  std::string buffer_;
  std::size_t begin_ = 0;
};

}  // namespace anchorhold::egress
