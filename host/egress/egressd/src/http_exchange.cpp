#include "http_exchange.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fmt/format.h>

#include "base/secret.h"
#include "egress/forward.h"
#include "git_judge.h"
#include "refusal.h"
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

HttpExchange::HttpExchange(GuestConnection& connection, Stream& guest, Reader& reader, Kind kind)
    : connection_(connection), guest_(guest), reader_(reader), kind_(kind) {
  if (connection_.server_) server_reader_ = std::make_unique<Reader>(*connection_.server_);
}

Awaitable<void> HttpExchange::run(std::optional<RequestHead> first) {
  for (;;) {
    if (!first) first = co_await next_head();
    if (!first) co_return;
    RequestHead head = std::move(*first);
    first.reset();
    if (!co_await one(std::move(head))) break;
  }
  if (connection_.server_) connection_.server_->cut();
  connection_.deadline_.in(connection_.proxy_.configuration()->limits.head);
  co_await linger(connection_.proxy_.loop(), guest_);
}

Awaitable<std::optional<RequestHead>> HttpExchange::next_head() {
  auto limits = connection_.proxy_.configuration()->limits;
  if (reader_.bytes().empty()) {
    connection_.deadline_.in(limits.waiting);
    if (!co_await reader_.fill()) co_return std::nullopt;
  }
  connection_.deadline_.in(limits.head);
  for (;;) {
    auto parsed = parse_request_head(reader_.bytes(), scheme_port());
    if (!parsed) {
      EventReport report = connection_.report_of(EventKind::deny, parsed.error().message);
      report.violation = true;
      co_await connection_.refuse(guest_, GuestConnection::refusal(400, std::move(report)));
      co_return std::nullopt;
    }
    if (*parsed) {
      reader_.consume((*parsed)->size);
      co_return std::move((*parsed)->head);
    }
    if (!co_await reader_.fill()) co_return std::nullopt;
  }
}

Awaitable<void> HttpExchange::refuse_request(const RequestHead& head, unsigned status, EventReport report,
                                             bool challenge) {
  report.method = head.method;
  report.path = head.path;
  refused_ = true;
  auto refusal = GuestConnection::refusal(status, std::move(report));
  const auto* rule = connection_.decided_.decision.rule;
  refusal.form.plain_text = rule && !rule->git.empty();
  refusal.form.challenge = challenge;
  co_await connection_.refuse(guest_, std::move(refusal));
}

// One request and its response; true when another may follow.
Awaitable<bool> HttpExchange::one(RequestHead head) {
  bool proxied = kind_ == Kind::proxied;
  auto wanted_form = proxied ? RequestHead::Form::absolute : RequestHead::Form::origin;
  if (head.form != wanted_form && head.form != RequestHead::Form::connect) {
    co_await refuse_request(
        head, 400,
        connection_.report_of(EventKind::deny, proxied ? "this is a proxy: a request names its destination"
                                                       : "there is one proxy, and this is not it"));
    co_return false;
  }
  bool ready = true;
  if (proxied) ready = co_await ready_server(head);
  if (!ready) co_return false;
  Outgoing outgoing;
  ready = co_await hold_push(head, outgoing);
  if (!ready) co_return false;
  if (!co_await prepare(head, outgoing)) co_return false;
  if (!proxied) ready = co_await ready_server(head);
  if (!ready) co_return false;
  outgoing.head = std::move(head);
  bool another = co_await transfer(outgoing);
  for (std::string& pattern : outgoing.secret_patterns) wipe(pattern);
  wipe(outgoing.text);
  co_return another;
}

// Whether an idle connection to the server is still what it was: nothing came on it, and it has not ended.
bool HttpExchange::server_is_silent() {
  if (!connection_.server_ || !server_reader_ || !server_reader_->bytes().empty()) return false;
  char byte;
  return connection_.server_->try_read({&byte, 1}).state == Io::State::waiting;
}

Awaitable<bool> HttpExchange::ready_server(const RequestHead& head) {
  bool proxied = kind_ == Kind::proxied;
  bool other = proxied && connection_.destination_ != head.destination;
  if (!other && server_is_silent()) co_return true;
  if (proxied && head.destination.port == 443) {
    EventReport report = connection_.report_of(EventKind::deny, "plain HTTP does not belong on port 443");
    report.host = head.destination.host.text();
    report.port = 443;
    report.violation = true;
    co_await refuse_request(head, 403, std::move(report));
    co_return false;
  }
  co_return co_await connect_server(head);
}

Awaitable<bool> HttpExchange::connect_server(const RequestHead& head) {
  server_reader_.reset();
  std::optional<GuestConnection::Refusal> refusal;
  if (kind_ == Kind::proxied) {
    Wanted wanted{.destination = head.destination, .method = head.method, .path = head.path};
    if (head.body.kind == BodyFraming::Kind::length) wanted.bytes_waiting = head.body.length;
    refusal = co_await connection_.reach(std::move(wanted), true);
  } else {
    if (connection_.server_) connection_.server_->cut();
    refusal = co_await connection_.dial_again(false);
    if (!refusal && kind_ == Kind::inside_tls) {
      std::vector<std::string> protocols{"http/1.1"};
      refusal = co_await connection_.secure_server(std::move(protocols));
    }
  }
  if (refusal) {
    co_await refuse_request(head, refusal->status, std::move(refusal->report));
    co_return false;
  }
  server_reader_ = std::make_unique<Reader>(*connection_.server_);
  server_used_ = false;
  co_return true;
}

RequestJudgement HttpExchange::judge(const RequestHead& head, const Decided& decided) const {
  RequestContext context{*connection_.destination_, decided.decision.rule, decided.configuration->credentials,
                         decided.configuration->session_token, kind_ == Kind::inside_tls};
  return judge_inner_request(head, context);
}

// Judged, with the secret in its place, and written as it goes on.
Awaitable<bool> HttpExchange::prepare(RequestHead& head, Outgoing& outgoing) {
  Decided decided = connection_.decided_;
  RequestJudgement judgement = judge(head, decided);
  if (judgement.verdict == RequestJudgement::Verdict::refuse) {
    auto kind = judgement.foreign_credential ? EventKind::credential_reject : EventKind::deny;
    EventReport report = connection_.report_of(kind, std::move(judgement.reason));
    report.violation = judgement.violation;
    if (decided.decision.rule) report.credential = decided.decision.rule->credential;
    co_await refuse_request(head, judgement.status, std::move(report), judgement.challenge);
    co_return false;
  }
  bool admitted = true;
  if (judgement.git) admitted = co_await admit_git(head, decided, *judgement.git, outgoing.push);
  if (!admitted) co_return false;
  bool swap = judgement.verdict == RequestJudgement::Verdict::swap;
  bool again = swap && judgement.form->kind == CredentialForm::Kind::aws_sigv4;
  if (again)
    swap = co_await sign(head, outgoing);
  else if (swap)
    swap = co_await swap_secret(head, judgement, outgoing);
  if (!swap && judgement.verdict == RequestJudgement::Verdict::swap) co_return false;
  outgoing.websocket = head.upgrade == "websocket" && head.method == "GET";
  ForwardedRequest how{.scheme_port = scheme_port(), .proxy_authorization = {}};
  how.websocket = outgoing.websocket;
  how.plain_coding = outgoing.credential;
  if (kind_ == Kind::proxied && connection_.through_) {
    how.absolute = true;
    how.proxy_authorization = proxy_authorization(*connection_.through_);
  }
  outgoing.text = forward_request(head, how);
  if (again) {
    for (Field& field : head.fields)
      if (is_named(field, "authorization") || is_named(field, "x-amz-security-token")) wipe(field.value);
  } else if (outgoing.credential) {
    wipe(head.fields[judgement.field].value);
  }
  co_return true;
}

// The secret that the rule's credential has, once its use is recorded; otherwise the guest has its answer.
Awaitable<std::optional<std::string>> HttpExchange::secret_for(const RequestHead& head, std::string scope) {
  Decided decided = connection_.decided_;
  SecretRequest request{.id = 0,
                        .credential = decided.decision.rule->credential,
                        .destination = head.destination,
                        .method = head.method,
                        .path = head.path,
                        .scope = std::move(scope)};
  std::string name = request.credential;
  auto secret = co_await connection_.proxy_.host().secret(std::move(request));
  EventReport report = connection_.report_of(EventKind::credential_use, {});
  report.credential = name;
  report.method = head.method;
  report.path = head.path;
  if (!secret) {
    report.kind = EventKind::deny;
    report.cause = fmt::format("the credential {} could not be had: {}", name, secret.error().message);
    co_await refuse_request(head, 403, std::move(report));
    co_return std::nullopt;
  }
  bool recorded = co_await connection_.record(report);
  if (recorded) co_return std::move(*secret);
  wipe(*secret);
  report.kind = EventKind::deny;
  report.cause = "the use of a credential must be recorded, and was not";
  co_await refuse_request(head, 403, std::move(report));
  co_return std::nullopt;
}

Awaitable<bool> HttpExchange::swap_secret(RequestHead& head, const RequestJudgement& judgement,
                                          Outgoing& outgoing) {
  std::string scope;
  std::optional<std::string> secret = co_await secret_for(head, std::move(scope));
  if (!secret) co_return false;
  std::string& value = head.fields[judgement.field].value;
  value = field_with_secret(*judgement.form, *secret);
  outgoing.secret_patterns = secret_patterns(*secret, value);
  outgoing.credential = true;
  wipe(*secret);
  co_return true;
}

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
  RelaySpec spec{connection_.proxy_.loop(),      guest_, *connection_.server_, connection_.deadline_, limits,
                 connection_.shared_from_this(), {}};
  co_await relay(std::move(spec));
}

}  // namespace anchorhold::egress
