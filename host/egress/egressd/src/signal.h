// Something that one coroutine waits for and another makes happen.
#pragma once

#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>

#include "stream.h"

namespace anchorhold::egress {

class Signal {
 public:
  explicit Signal(asio::io_context& loop) : timer_(loop, asio::steady_timer::time_point::max()) {}
  // Every waiter goes on, and later ones do not wait, until reset.
  void set() {
    set_ = true;
    timer_.cancel();
  }
  void reset() { set_ = false; }
  bool is_set() const { return set_; }
  Awaitable<void> wait() {
    while (!set_) co_await timer_.async_wait(asio::experimental::as_tuple(asio::use_awaitable));
  }
  // False when the time is over and it was not set. For one waiter only.
  Awaitable<bool> wait_for(std::chrono::milliseconds limit) {
    if (set_) co_return true;
    timer_.expires_after(limit);
    co_await timer_.async_wait(asio::experimental::as_tuple(asio::use_awaitable));
    timer_.expires_at(asio::steady_timer::time_point::max());
    co_return set_;
  }

 private:
  asio::steady_timer timer_;
  bool set_ = false;
};

// Cuts a stream when a time is over, unless this ends before.
class TimeLimit {
 public:
  TimeLimit(asio::io_context& loop, Stream& stream, std::chrono::milliseconds limit)
      : state_(std::make_shared<State>(loop, &stream)) {
    state_->timer.expires_after(limit);
    state_->timer.async_wait([state = state_](boost::system::error_code error) {
      if (error || !state->stream) return;
      state->stream->cut();
    });
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;
  ~TimeLimit() {
    state_->stream = nullptr;
    state_->timer.cancel();
  }

 private:
  struct State {
    State(asio::io_context& loop, Stream* cut) : timer(loop), stream(cut) {}
    asio::steady_timer timer;
    Stream* stream;
  };
  std::shared_ptr<State> state_;
};

}  // namespace anchorhold::egress
