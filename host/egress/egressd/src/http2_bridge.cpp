#include "http2_bridge.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fmt/format.h>

#include "base/secret.h"
#include "refusal.h"

namespace anchorhold::egress {
namespace {

constexpr std::chrono::milliseconds goodbye_limit(2000);

std::uint32_t error_or(std::uint32_t error, std::uint32_t instead) {
  return error == NGHTTP2_NO_ERROR ? instead : error;
}

}  // namespace

Http2Bridge::Exchange::~Exchange() {
  for (std::string& pattern : secret_patterns) wipe(pattern);
}

class Http2Bridge::GuestEvents final : public Http2Events {
 public:
  explicit GuestEvents(Http2Bridge& bridge) : bridge_(bridge) {}
  void on_fields(std::int32_t id, std::vector<Field> fields, bool ends) override {
    if (auto exchange = bridge_.of_guest(id))
      bridge_.end_request(exchange, std::move(fields));
    else
      bridge_.take_request(id, std::move(fields), ends);
  }
  void on_data(std::int32_t id, std::string_view bytes) override {
    if (auto exchange = bridge_.of_guest(id))
      bridge_.take_body(exchange, bytes);
    else
      bridge_.guest_->passed_on(id, bytes.size());
  }
  void on_end(std::int32_t id) override {
    if (auto exchange = bridge_.of_guest(id)) bridge_.end_request(exchange, {});
  }
  void on_closed(std::int32_t id, std::uint32_t error) override { bridge_.guest_closed(id, error); }
  void on_goaway() override {}
  Part next_part(std::int32_t id, std::size_t room) override {
    auto exchange = bridge_.of_guest(id);
    if (!exchange) return {{}, true, nullptr};
    Flow& down = exchange->down;
    return {std::string_view(down.waiting).substr(0, room), down.ends && down.waiting.size() <= room,
            &down.trailers};
  }
  void part_was_sent(std::int32_t id, std::size_t size) override {
    auto exchange = bridge_.of_guest(id);
    if (!exchange) return;
    exchange->down.waiting.erase(0, size);
    if (!exchange->refused) bridge_.server_->passed_on(exchange->server_id, size);
  }

 private:
  Http2Bridge& bridge_;
};

class Http2Bridge::ServerEvents final : public Http2Events {
 public:
  explicit ServerEvents(Http2Bridge& bridge) : bridge_(bridge) {}
  void on_fields(std::int32_t id, std::vector<Field> fields, bool ends) override {
    auto exchange = bridge_.of_server(id);
    if (!exchange) return;
    if (exchange->responded)
      bridge_.end_response(exchange, std::move(fields));
    else
      bridge_.take_response(exchange, std::move(fields), ends);
  }
  void on_data(std::int32_t id, std::string_view bytes) override {
    if (auto exchange = bridge_.of_server(id))
      bridge_.take_response_body(exchange, bytes);
    else
      bridge_.server_->passed_on(id, bytes.size());
  }
  void on_end(std::int32_t id) override {
    if (auto exchange = bridge_.of_server(id)) bridge_.end_response(exchange, {});
  }
  void on_closed(std::int32_t id, std::uint32_t error) override { bridge_.server_closed(id, error); }
  void on_goaway() override { bridge_.guest_->announce_end(); }
  Part next_part(std::int32_t id, std::size_t room) override {
    auto exchange = bridge_.of_server(id);
    if (!exchange) return {{}, true, nullptr};
    Flow& up = exchange->up;
    return {std::string_view(up.waiting).substr(0, room), up.ends && up.waiting.size() <= room, &up.trailers};
  }
  void part_was_sent(std::int32_t id, std::size_t size) override {
    auto exchange = bridge_.of_server(id);
    if (!exchange) return;
    exchange->up.waiting.erase(0, size);
    bridge_.guest_->passed_on(exchange->guest_id, size);
  }

 private:
  Http2Bridge& bridge_;
};

Http2Bridge::Http2Bridge(OpenedConnection& connection, Stream& guest)
    : connection_(connection),
      guest_stream_(guest),
      guest_events_(std::make_unique<GuestEvents>(*this)),
      server_events_(std::make_unique<ServerEvents>(*this)),
      ended_(connection.loop()),
      dialled_(connection.loop()),
      guest_gone_(connection.loop()) {
  guest_ =
      std::make_shared<Http2Session>(connection.loop(), guest, Http2Session::Side::server, *guest_events_);
}

Http2Bridge::~Http2Bridge() = default;

Http2Bridge::Shared Http2Bridge::of_guest(std::int32_t id) {
  auto found = by_guest_.find(id);
  return found == by_guest_.end() ? nullptr : found->second;
}

Http2Bridge::Shared Http2Bridge::of_server(std::int32_t id) {
  auto found = by_server_.find(id);
  return found == by_server_.end() ? nullptr : found->second;
}

void Http2Bridge::begin_server() {
  server_ = std::make_shared<Http2Session>(connection_.loop(), *connection_.server(),
                                           Http2Session::Side::client, *server_events_);
  begin(server_);
}

void Http2Bridge::begin(const std::shared_ptr<Http2Session>& session) {
  running_ += 2;
  for (bool reads : {true, false}) asio::co_spawn(connection_.loop(), side(session, reads), asio::detached);
}

Awaitable<void> Http2Bridge::side(std::shared_ptr<Http2Session> session, bool reads) {
  if (reads)
    co_await session->read();
  else
    co_await session->write();
  if (session == guest_ && !reads) co_await say_goodbye();
  if (session == guest_)
    guest_is_gone();
  else if (session == server_)
    server_is_gone();
  session.reset();
  if (--running_ == 0) ended_.set();
}

// The guest gets to read the last of it, whatever it still sends.
Awaitable<void> Http2Bridge::say_goodbye() {
  if (guest_gone_.is_set()) co_return;
  co_await shut_down(guest_stream_);
  TimeLimit time(connection_.loop(), guest_stream_, goodbye_limit);
  co_await guest_gone_.wait();
}

void Http2Bridge::rest_if_idle() {
  if (!by_guest_.empty() || !by_server_.empty() || dialling_) return;
  const auto& limits = connection_.decided().configuration->limits;
  connection_.rests(server_ ? limits.unused : limits.waiting);
}

void Http2Bridge::time_is_over() {
  if (server_ && !server_gone_) {
    server_->leave(connection_.let_go_of_server());
    server_.reset();
    guest_->rest();
    rest_if_idle();
  } else {
    guest_->announce_end();
    guest_->end();
  }
}

// The guest still gets what came of responses that are whole.
void Http2Bridge::server_is_gone() {
  if (std::exchange(server_gone_, true)) return;
  server_->end();
  connection_.server()->cut();
  auto open = by_server_;
  for (const auto& [id, exchange] : open) server_closed(id, NGHTTP2_INTERNAL_ERROR);
  guest_->announce_end();
  if (by_guest_.empty()) guest_->end();
}

void Http2Bridge::guest_is_gone() {
  guest_gone_.set();
  guest_->end();
  guest_stream_.cut();
  if (!server_) return;
  server_->end();
  connection_.server()->cut();
}

Awaitable<void> Http2Bridge::run() {
  begin_server();
  begin(guest_);
  rest_if_idle();
  co_await ended_.wait();
  if (guest_->fault().empty()) co_return;
  EventReport report = connection_.report_of(EventKind::deny, "HTTP/2: " + guest_->fault());
  report.violation = true;
  co_await connection_.record(std::move(report));
}

// The guest gets its answer from here; the server, if it has the request already, is told to forget it.
void Http2Bridge::refuse(const Shared& exchange, unsigned status, EventReport report, RefusalForm form) {
  if (exchange->refused) return;
  exchange->refused = true;
  guest_->passed_on(exchange->guest_id, exchange->held.size());
  std::string().swap(exchange->held);
  const auto* rule = connection_.decided().decision.rule;
  form.plain_text = rule && !rule->git.empty();
  if (exchange->server_id >= 0) {
    server_->reset(exchange->server_id, NGHTTP2_CANCEL);
    by_server_.erase(exchange->server_id);
  }
  report.method = exchange->head.method;
  report.path = exchange->head.path;
  ++running_;
  asio::co_spawn(connection_.loop(), refuse_recorded(exchange, status, std::move(report), std::move(form)),
                 asio::detached);
}

Awaitable<void> Http2Bridge::refuse_recorded(Shared exchange, unsigned status, EventReport report,
                                             RefusalForm form) {
  co_await connection_.record(report);
  bool open = of_guest(exchange->guest_id) == exchange;
  if (open && exchange->responded) {
    guest_->reset(exchange->guest_id, NGHTTP2_CANCEL);
  } else if (open) {
    RefusalResponse response = refusal_message(status, report, form);
    // A client of Git reads its answer after it has sent its pack, and waits for ever for one that came
    // before.
    if (!form.git_report.empty() && !exchange->up.ends)
      exchange->at_end = std::move(response);
    else
      answer_refused(exchange, std::move(response));
  }
  if (--running_ == 0) ended_.set();
}

void Http2Bridge::answer_refused(const Shared& exchange, RefusalResponse response) {
  Flow& down = exchange->down;
  down.waiting = std::move(response.body);
  down.ends = true;
  std::vector<Field> fields{{":status", std::to_string(response.status)}};
  for (Field& field : response.fields) fields.push_back(std::move(field));
  guest_->respond(exchange->guest_id, fields, true);
}

void Http2Bridge::guest_closed(std::int32_t id, std::uint32_t error) {
  auto exchange = of_guest(id);
  if (!exchange) return;
  by_guest_.erase(id);
  // What waits for the server has its room in the connection's window.
  std::size_t waiting = exchange->up.waiting.size() + exchange->held.size();
  if (waiting > 0) guest_->passed_on(id, waiting);
  if (!exchange->down.waiting.empty() && !exchange->refused)
    server_->passed_on(exchange->server_id, exchange->down.waiting.size());
  if (server_gone_ && by_guest_.empty()) guest_->end();
  const bool whole = error == NGHTTP2_NO_ERROR && exchange->up.ends && exchange->down.ends;
  if (!whole && of_server(exchange->server_id)) {
    server_->reset(exchange->server_id, error_or(error, NGHTTP2_CANCEL));
    by_server_.erase(exchange->server_id);
  }
  rest_if_idle();
}

void Http2Bridge::server_closed(std::int32_t id, std::uint32_t error) {
  auto exchange = of_server(id);
  if (!exchange) return;
  by_server_.erase(id);
  rest_if_idle();
  if (exchange->refused || !of_guest(exchange->guest_id)) return;
  // Its response is whole, and what waits of it goes out; otherwise the guest learns how it ended.
  if (!exchange->down.ends || (error != NGHTTP2_NO_ERROR && !server_gone_))
    guest_->reset(exchange->guest_id, error_or(error, NGHTTP2_INTERNAL_ERROR));
}

}  // namespace anchorhold::egress
