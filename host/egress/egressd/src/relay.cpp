#include "relay.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

namespace anchorhold::egress {
namespace {

// Buffers that one connection moves before it lets the others do something.
constexpr unsigned buffers_at_once = 16;
constexpr std::chrono::milliseconds linger_limit(2000);
constexpr std::size_t linger_bytes = 1u << 20;

struct Relay {
  explicit Relay(RelaySpec given) : spec(std::move(given)), over(spec.loop) {}
  RelaySpec spec;
  Signal over;
  int ended = 0;

  void moved() { spec.deadline.in(ended == 0 ? spec.limits.quiet : spec.limits.half_closed); }
  void cut() {
    spec.left.cut();
    spec.right.cut();
  }
};

Awaitable<void> pump(std::shared_ptr<Relay> relay, Stream& from, Stream& to) {
  bool whole = false, begun = true;
  if (&from == &relay->spec.left && relay->spec.first) begun = co_await relay->spec.first();
  for (unsigned turn = 1; begun; ++turn) {
    Io io = from.try_read(scratch());
    if (io.state == Io::State::waiting) {
      co_await from.wait(io.direction);
      continue;
    }
    if (io.state != Io::State::done) {
      whole = io.state == Io::State::end;
      break;
    }
    relay->moved();
    std::string_view bytes(scratch().data(), io.count);
    if (!write_now(to, bytes)) break;
    if (!bytes.empty()) {
      std::string rest(bytes);
      if (!co_await write_all(to, rest)) break;
      relay->moved();
    } else if (io.drained) {
      co_await from.wait(Direction::read);
    } else if (turn % buffers_at_once == 0) {
      co_await asio::post(relay->spec.loop, asio::use_awaitable);
    }
  }
  if (whole)
    co_await shut_down(to);
  else
    relay->cut();
  if (++relay->ended == 2) relay->over.set();
  relay->moved();
}

}  // namespace

bool write_now(Stream& stream, std::string_view& bytes) {
  while (!bytes.empty()) {
    Io io = stream.try_write(bytes);
    if (io.state == Io::State::waiting) return true;
    if (io.state != Io::State::done) return false;
    bytes.remove_prefix(io.count);
  }
  return true;
}

Awaitable<void> relay(RelaySpec spec) {
  auto state = std::make_shared<Relay>(std::move(spec));
  state->moved();
  asio::co_spawn(state->spec.loop, pump(state, state->spec.left, state->spec.right), asio::detached);
  co_await pump(state, state->spec.right, state->spec.left);
  co_await state->over.wait();
}

Awaitable<void> linger(asio::io_context& loop, Stream& stream) {
  co_await shut_down(stream);
  TimeLimit time(loop, stream, linger_limit);
  for (std::size_t total = 0; total < linger_bytes;) {
    Io io = co_await read_some(stream, scratch());
    if (io.state != Io::State::done) co_return;
    total += io.count;
  }
}

}  // namespace anchorhold::egress
