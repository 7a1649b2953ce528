#include "http2_bridge.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fmt/format.h>

#include "base/secret.h"
#include "refusal.h"

namespace anchorhold::egress {
namespace {

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
      ended_(connection.loop()) {
  auto& loop = connection.loop();
  guest_ = std::make_unique<Http2Session>(loop, guest, Http2Session::Side::server, *guest_events_);
  server_ =
      std::make_unique<Http2Session>(loop, connection.server(), Http2Session::Side::client, *server_events_);
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

Awaitable<void> Http2Bridge::side(Http2Session& session, bool reads) {
  if (reads)
    co_await session.read();
  else
    co_await session.write();
  if (&session == server_.get())
    server_is_gone();
  else
    guest_is_gone();
  if (--running_ == 0) ended_.set();
}

// The guest still gets what came of responses that are whole.
void Http2Bridge::server_is_gone() {
  if (std::exchange(server_gone_, true)) return;
  server_->end();
  connection_.server().cut();
  auto open = by_server_;
  for (const auto& [id, exchange] : open) server_closed(id, NGHTTP2_INTERNAL_ERROR);
  guest_->announce_end();
  if (by_guest_.empty()) guest_->end();
}

void Http2Bridge::guest_is_gone() {
  guest_->end();
  server_->end();
  guest_stream_.cut();
  connection_.server().cut();
}

Awaitable<void> Http2Bridge::run() {
  auto& loop = connection_.loop();
  connection_.moves();
  running_ = 4;
  for (Http2Session* session : {guest_.get(), server_.get()})
    for (bool reads : {true, false}) asio::co_spawn(loop, side(*session, reads), asio::detached);
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
  if (exchange->server_id < 0 || !of_server(exchange->server_id)) return;
  if (error != NGHTTP2_NO_ERROR || !exchange->up.ends || !exchange->down.ends) {
    server_->reset(exchange->server_id, error_or(error, NGHTTP2_CANCEL));
    by_server_.erase(exchange->server_id);
  }
}

void Http2Bridge::server_closed(std::int32_t id, std::uint32_t error) {
  auto exchange = of_server(id);
  if (!exchange) return;
  by_server_.erase(id);
  if (exchange->refused || !of_guest(exchange->guest_id)) return;
  // Its response is whole, and what waits of it goes out; otherwise the guest learns how it ended.
  if (!exchange->down.ends || (error != NGHTTP2_NO_ERROR && !server_gone_))
    guest_->reset(exchange->guest_id, error_or(error, NGHTTP2_INTERNAL_ERROR));
}

}  // namespace anchorhold::egress
