#include "connection.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>

namespace anchorhold::guest {
namespace {

constexpr std::uint32_t everything =
    vsock::ready::readable | vsock::ready::writable | vsock::ready::peer_done | vsock::ready::edge;
// Pieces that one connection passes on before others get their turn.
constexpr int pieces_a_turn = 8;

bool would_block(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN);
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::create(ConnectionHost& host, Kind kind, UniqueFd client,
                                                       std::string target, std::function<void()> ended) {
  ANCHORHOLD_CHECK(set_nonblocking(client.get()));
  std::unique_ptr<Connection> made(new Connection(host, std::move(client), std::move(ended)));
  if (kind == Kind::transparent) {
    made->http_port_ = target.ends_with(":80");
    ANCHORHOLD_CHECK(made->dial(connect_request(target)));
    made->state_ = State::connecting;
  }
  made->client_watch_ = ANCHORHOLD_TRY(host.loop.watch(
      made->client_.get(), everything, [self = made.get()](std::uint32_t) { self->go_on(); }));
  return made;
}

Connection::~Connection() {
  *alive_ = false;
  host_.held_bytes -= out_.held.size() + in_.held.size();
  client_watch_ = {};
  stream_watch_ = {};
}

Status Connection::dial(std::string request) {
  stream_ = ANCHORHOLD_TRY(host_.dial());
  request_ = std::move(request);
  stream_watch_ = ANCHORHOLD_TRY(host_.loop.watch(stream_.get(), everything, [this](std::uint32_t events) {
    if (events & vsock::ready::error) return stream_failed();
    go_on();
  }));
  return {};
}

// What can be done now is done, whatever was ready.
void Connection::go_on() {
  if (state_ == State::first_byte) read_first_byte();
  if (state_ == State::socks) read_socks_request();
  if (state_ == State::connecting) await_host();
  if (state_ == State::passing || state_ == State::refusing) pass();
}

// A dial that failed is told here only: the stream looks as before.
void Connection::stream_failed() {
  if (state_ == State::connecting) return refuse({});
  end(true);
}

void Connection::read_first_byte() {
  char first = 0;
  ssize_t got = recv(client_.get(), &first, 1, MSG_PEEK);
  if (would_block(got)) return;
  if (got <= 0) return end(false);
  socks_ = first == '\x05';
  if (socks_) {
    state_ = State::socks;
    return;
  }
  if (!dial({})) return end(true);
  out_ = {client_.get(), stream_.get(), {}, false, false};
  in_ = {stream_.get(), client_.get(), {}, false, false};
  state_ = State::passing;
}

void Connection::read_socks_request() {
  for (;;) {
    char bytes[512];
    auto request = read_socks(talk_, greeted_, host_.find_name);
    switch (request.kind) {
      case SocksRequest::Kind::incomplete: {
        ssize_t got = read(client_.get(), bytes, std::min(sizeof bytes, max_head_bytes - talk_.size()));
        if (would_block(got)) return;
        if (got <= 0) return end(false);
        talk_.append(bytes, static_cast<std::size_t>(got));
        break;
      }
      case SocksRequest::Kind::greeted:
        say_to_program(socks_greeting);
        greeted_ = true;
        talk_.erase(0, request.used);
        break;
      case SocksRequest::Kind::refused:
        say_to_program(request.reply);
        return end(false);
      case SocksRequest::Kind::connect:
        if (!dial(connect_request(request.target))) {
          say_to_program(socks_reply(socks_failed));
          return end(false);
        }
        // What it said already belongs to the server.
        request_ += talk_.substr(request.used);
        talk_.clear();
        state_ = State::connecting;
        return;
    }
  }
}

// A program that we talk to waits for the answer, so there is room for it.
void Connection::say_to_program(std::string_view bytes) {
  (void)!send(client_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// CONNECT goes out, the answer's head comes in.
void Connection::await_host() {
  while (!request_.empty()) {
    ssize_t sent = send(stream_.get(), request_.data(), request_.size(), MSG_NOSIGNAL);
    if (would_block(sent)) return;
    if (sent < 0) return refuse({});
    request_.erase(0, static_cast<std::size_t>(sent));
  }
  for (;;) {
    auto reply = read_connect_reply(talk_);
    if (reply.kind == ConnectReply::Kind::broken) return refuse({});
    if (reply.kind == ConnectReply::Kind::refused) return refuse(std::exchange(talk_, {}));
    if (reply.kind == ConnectReply::Kind::open) {
      if (socks_) say_to_program(socks_reply(socks_ok));
      out_ = {client_.get(), stream_.get(), {}, false, false};
      in_ = {stream_.get(), client_.get(), {}, false, false};
      hold(in_, std::string_view(talk_).substr(reply.head_bytes));
      talk_ = {};
      state_ = State::passing;
      return;
    }
    char bytes[2048];
    ssize_t got = read(stream_.get(), bytes, sizeof bytes);
    if (would_block(got)) return;
    if (got <= 0) return refuse({});
    talk_.append(bytes, static_cast<std::size_t>(got));
  }
}

// Who speaks HTTP gets the host's answer as that of its server, reason and all; who speaks something else
// finds the connection reset.
void Connection::refuse(std::string_view answer_of_host) {
  if (socks_) {
    say_to_program(socks_reply(answer_of_host.empty() ? socks_failed : socks_not_allowed));
    return end(false);
  }
  if (!http_port_ || answer_of_host.empty()) return end(true);
  in_ = {stream_.get(), client_.get(), {}, false, false};
  hold(in_, answer_of_host);
  state_ = State::refusing;
}

void Connection::hold(Direction& direction, std::string_view bytes) {
  direction.held += bytes;
  host_.held_bytes += bytes.size();
}

// True when there may be more to do at once.
bool Connection::pass(Direction& direction) {
  for (int piece = 0; piece < pieces_a_turn; ++piece) {
    while (!direction.held.empty()) {
      ssize_t sent = send(direction.to, direction.held.data(), direction.held.size(), MSG_NOSIGNAL);
      if (would_block(sent)) return false;
      if (sent < 0) {
        end(true);
        return false;
      }
      host_.held_bytes -= static_cast<std::size_t>(sent);
      if (static_cast<std::size_t>(sent) == direction.held.size())
        direction.held = {};  // its memory as well: most connections are idle
      else
        direction.held.erase(0, static_cast<std::size_t>(sent));
    }
    if (direction.from_ended) {
      if (!std::exchange(direction.to_ended, true)) shutdown(direction.to, SHUT_WR);
      return false;
    }
    std::size_t size = host_.held_bytes > plenty_held_bytes ? little_bytes : host_.scratch.size();
    ssize_t got = read(direction.from, host_.scratch.data(), size);
    if (would_block(got)) return false;
    if (got < 0) {
      end(true);
      return false;
    }
    direction.from_ended = got == 0;
    std::string_view bytes(host_.scratch.data(), static_cast<std::size_t>(got));
    ssize_t sent = bytes.empty() ? 0 : send(direction.to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && !would_block(sent)) {
      end(true);
      return false;
    }
    hold(direction, bytes.substr(static_cast<std::size_t>(std::max<ssize_t>(sent, 0))));
  }
  return true;
}

// What a refused program still sends: unread, it would make the kernel reset the answer away.
bool Connection::drop_input() {
  for (int piece = 0; piece < pieces_a_turn; ++piece) {
    ssize_t got = read(client_.get(), host_.scratch.data(), host_.scratch.size());
    if (would_block(got)) return false;
    if (got > 0) continue;
    if (got < 0 || in_.held.empty()) end(false);
    return false;
  }
  return true;
}

void Connection::pass() {
  bool more = pass(in_);
  if (state_ == State::passing)
    more = pass(out_) || more;
  else if (state_ == State::refusing)
    more = drop_input() || more;
  if (state_ == State::ended) return;
  if (in_.to_ended && out_.to_ended) return end(false);
  if (!more || std::exchange(scheduled_, true)) return;
  host_.loop.post([this, alive = alive_] {
    if (!*alive) return;
    scheduled_ = false;
    go_on();
  });
}

void Connection::end(bool reset) {
  if (state_ == State::ended) return;
  state_ = State::ended;
  if (reset) {
    linger at_once{1, 0};
    (void)setsockopt(client_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  client_watch_ = {};
  stream_watch_ = {};
  client_.reset();
  stream_.reset();
  host_.loop.post([ended = ended_] { ended(); });
}

}  // namespace anchorhold::guest
