#include "relay.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <optional>

namespace anchorhold::egress {
namespace {

// Buffers that one connection moves before it lets the others do something.
constexpr unsigned buffers_at_once = 16;
constexpr std::chrono::milliseconds linger_limit(2000);
constexpr std::size_t linger_bytes = 1u << 20;

// What is said of it here happens on `loop`, but for `over`.
struct Relay {
  explicit Relay(RelaySpec given) : spec(std::move(given)), over(spec.loop) {
    const int left_socket = spec.left.lend(), right_socket = spec.right.lend();
    if (left_socket < 0 || right_socket < 0) return;
    loop = &spec.others.next();
    if (loop == &spec.loop) return;
    lent_left.emplace(*loop, left_socket);
    lent_right.emplace(*loop, right_socket);
    left = &*lent_left;
    right = &*lent_right;
  }
  RelaySpec spec;
  Signal over;  // of the connection's own loop
  std::optional<LentSocket> lent_left, lent_right;
  asio::io_context* loop = &spec.loop;
  Stream* left = &spec.left;
  Stream* right = &spec.right;
  int ended = 0;

  void moved() { spec.deadline.in(ended == 0 ? spec.limits.quiet : spec.limits.half_closed); }
  void cut() {
    left->cut();
    right->cut();
  }
};

void end_one(const std::shared_ptr<Relay>& relay) {
  relay->moved();
  if (++relay->ended < 2) return;
  relay->lent_left.reset();
  relay->lent_right.reset();
  asio::post(relay->spec.loop, [relay] { relay->over.set(); });
}

Awaitable<void> pump(std::shared_ptr<Relay> relay, Stream& from, Stream& to) {
  bool whole = false;
  for (unsigned turn = 1;; ++turn) {
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
      co_await asio::post(*relay->loop, asio::use_awaitable);
    }
  }
  if (whole)
    co_await shut_down(to);
  else
    relay->cut();
  end_one(relay);
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
  auto first = std::move(spec.first);
  auto state = std::make_shared<Relay>(std::move(spec));
  state->moved();
  asio::co_spawn(*state->loop, pump(state, *state->right, *state->left), asio::detached);
  bool begun = true;
  if (first) begun = co_await first();
  if (begun) {
    if (state->loop != &state->spec.loop) (void)state->spec.left.lend();
    asio::co_spawn(*state->loop, pump(state, *state->left, *state->right), asio::detached);
  } else {
    state->spec.left.cut();
    state->spec.right.cut();
    asio::post(*state->loop, [state] { end_one(state); });
  }
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
