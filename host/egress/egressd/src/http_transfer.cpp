// A judged request on its way: sent, its body after it, and the response to the guest.
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fmt/format.h>

#include "base/secret.h"
#include "egress/forward.h"
#include "http_exchange.h"
#include "relay.h"

namespace anchorhold::egress {

// The body of a request, which goes up while the response may come down already.
struct HttpExchange::Sending {
  explicit Sending(asio::io_context& loop) : done(loop) {}
  Signal done;
  BodyOutcome outcome;
  std::unique_ptr<BodyFilter> filter;
  std::shared_ptr<GuestConnection> owner;

  bool whole() const { return done.is_set() && outcome.kind == BodyOutcome::Kind::whole; }
};

// Sent on the connection there is; on a new one when that one had served before and ended meanwhile.
Awaitable<bool> HttpExchange::send_head(Outgoing& outgoing) {
  connection_.deadline_.in(connection_.decided_.configuration->limits.quiet);
  bool sent = co_await write_all(*connection_.server_, outgoing.text);
  if (!sent && server_used_) {
    bool connected = co_await connect_server(outgoing.head);
    if (connected) sent = co_await write_all(*connection_.server_, outgoing.text);
  }
  co_return sent;
}

std::shared_ptr<HttpExchange::Sending> HttpExchange::begin_body(const Outgoing& outgoing) {
  const RequestHead& head = outgoing.head;
  bool has_body = head.body.kind == BodyFraming::Kind::chunked ||
                  (head.body.kind == BodyFraming::Kind::length && head.body.length > 0);
  if (!has_body) return nullptr;
  auto sending = std::make_shared<Sending>(connection_.proxy_.loop());
  sending->owner = connection_.shared_from_this();
  auto configuration = connection_.decided_.configuration;
  BodySpec spec;
  spec.framing = head.body;
  const auto* rule = connection_.decided_.decision.rule;
  std::string token = outgoing.credential ? std::string() : configuration->session_token;
  std::vector<std::string> fields = rule ? rule->deny_json_fields : std::vector<std::string>();
  sending->filter = request_filter(std::move(token), std::move(fields));
  spec.filter = sending->filter.get();
  if (rule && rule->max_upload) {
    spec.most = rule->max_upload->bytes;
    spec.refused_beyond = fmt::format("a body of more than {} is not allowed by the rule for {} ({})",
                                      to_string(*rule->max_upload), rule->host.text(), rule->source);
  }
  spec.judge_trailers = [configuration](const std::vector<Field>& trailers) {
    return judge_trailers(trailers, configuration->session_token);
  };
  spec.moved = [this, configuration] { connection_.deadline_.in(configuration->limits.quiet); };
  asio::co_spawn(connection_.proxy_.loop(), send_body(sending, std::move(spec)), asio::detached);
  return sending;
}

Awaitable<void> HttpExchange::send_body(std::shared_ptr<Sending> sending, BodySpec spec) {
  sending->outcome = co_await relay_body(reader_, *connection_.server_, std::move(spec));
  // Without its end the request is none: the server must not take what came for the whole. When it is the
  // server that takes no more, it may have answered.
  if (sending->outcome.kind == BodyOutcome::Kind::refused ||
      sending->outcome.kind == BodyOutcome::Kind::cut_short)
    connection_.server_->cut();
  sending->done.set();
}

Awaitable<void> HttpExchange::end_body(std::shared_ptr<Sending> sending) {
  if (!sending || sending->done.is_set()) co_return;
  // It waits for the guest or for the server, and nothing that comes is wanted any more.
  connection_.server_->cut();
  guest_.cut();
  co_await sending->done.wait();
}

Awaitable<std::optional<ResponseHead>> HttpExchange::response_head(const Outgoing& outgoing) {
  for (;;) {
    auto parsed = parse_response_head(server_reader_->bytes(), outgoing.head.method);
    if (!parsed) {
      fault_ = parsed.error().message;
      co_return std::nullopt;
    }
    if (*parsed) {
      server_reader_->consume((*parsed)->size);
      co_return std::move((*parsed)->head);
    }
    if (!co_await server_reader_->fill()) {
      fault_ = "it closed the connection";
      co_return std::nullopt;
    }
  }
}

Awaitable<bool> HttpExchange::transfer(Outgoing& outgoing) {
  fault_.clear();
  std::shared_ptr<Sending> sending;
  std::optional<ResponseHead> head;
  bool sent = co_await send_head(outgoing);
  if (sent) {
    sending = begin_body(outgoing);
    head = co_await response_head(outgoing);
    bool ended_meanwhile = !head && !sending && server_used_ && server_reader_->bytes().empty();
    if (ended_meanwhile) {
      bool connected = co_await connect_server(outgoing.head);
      if (!connected) co_return false;
      sent = co_await write_all(*connection_.server_, outgoing.text);
      if (sent) head = co_await response_head(outgoing);
    }
  }
  wipe(outgoing.text);
  server_used_ = true;
  while (head && head->status < 200 && head->status != 101) {
    std::string interim = outgoing.head.http_1_0 ? "" : forward_response(*head, {});
    if (!co_await write_all(guest_, interim)) break;
    head = co_await response_head(outgoing);
  }
  if (!head) co_return co_await no_response(outgoing, sending);
  co_return co_await respond(outgoing, std::move(*head), sending);
}

Awaitable<bool> HttpExchange::no_response(Outgoing& outgoing, std::shared_ptr<Sending> sending) {
  bool refused = sending && sending->done.is_set() && sending->outcome.kind == BodyOutcome::Kind::refused;
  EventReport report = connection_.report_of(EventKind::deny, {});
  if (refused) {
    report.cause = sending->outcome.reason;
  } else {
    report.cause = fmt::format("{} did not answer as a server does: {}", connection_.destination_->text(),
                               fault_.empty() ? "it closed the connection" : fault_);
    if (connection_.cut_) co_await end_body(sending);
  }
  if (connection_.cut_ || refused_) co_return false;
  co_await refuse_request(outgoing.head, refused ? 403 : 502, std::move(report));
  co_await end_body(sending);
  co_return false;
}

Awaitable<bool> HttpExchange::respond(Outgoing& outgoing, ResponseHead head,
                                      std::shared_ptr<Sending> sending) {
  bool websocket = head.status == 101 && outgoing.websocket;
  auto codings = values_of(head.fields, "content-encoding");
  bool coded = std::any_of(codings.begin(), codings.end(),
                           [](std::string_view coding) { return coding != "identity"; });
  if ((head.status == 101 && !websocket) || (coded && outgoing.credential)) {
    fault_ = coded ? "its response is compressed, and cannot be searched for the credential"
                   : "it changed to a protocol that nobody asked for";
    connection_.server_->cut();
    co_return co_await no_response(outgoing, sending);
  }
  for (Field& field : head.fields) field.value = scrubbed(field.value, outgoing.secret_patterns);
  bool until_close = head.body.kind == BodyFraming::Kind::until_close ||
                     (head.body.kind == BodyFraming::Kind::chunked && outgoing.head.http_1_0);
  bool keep = outgoing.head.keep_alive && !until_close && (!sending || sending->whole());
  ForwardedResponse how{keep, websocket, outgoing.head.http_1_0};
  if (!co_await write_all(guest_, forward_response(head, how))) {
    co_await end_body(sending);
    co_return false;
  }
  if (websocket) {
    co_await speak_websocket();
    co_return false;
  }
  BodySpec spec;
  spec.framing = head.body;
  spec.chunked_out = !outgoing.head.http_1_0;
  std::unique_ptr<BodyFilter> scrub;
  if (!outgoing.secret_patterns.empty()) {
    scrub = scrub_secrets(outgoing.secret_patterns);
    spec.filter = scrub.get();
  }
  auto limits = connection_.decided_.configuration->limits;
  spec.moved = [this, limits] { connection_.deadline_.in(limits.quiet); };
  BodyOutcome outcome = co_await relay_body(*server_reader_, guest_, std::move(spec));
  bool whole = outcome.kind == BodyOutcome::Kind::whole;
  co_await end_body(sending);
  if (!whole) guest_.cut();  // so that a part is not taken for all of it
  if (!head.keep_alive) {
    connection_.server_->cut();
    server_reader_.reset();
  }
  co_return keep&& whole;
}

Awaitable<void> HttpExchange::speak_websocket() {
  std::string to_guest = server_reader_->take_all(), to_server = reader_.take_all();
  bool sent = co_await write_all(guest_, to_guest);
  if (sent) sent = co_await write_all(*connection_.server_, to_server);
  if (!sent) co_return;
  auto limits = connection_.decided_.configuration->limits;
  RelaySpec spec{connection_.proxy_.loop(),
                 connection_.proxy_.relay_loops(),
                 guest_,
                 *connection_.server_,
                 connection_.deadline_,
                 limits,
                 {}};
  co_await relay(std::move(spec));
}

}  // namespace anchorhold::egress
