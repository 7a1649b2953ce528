#include "http_exchange.h"

#include <fmt/format.h>

#include "base/secret.h"
#include "egress/forward.h"
#include "git_judge.h"
#include "refusal.h"
#include "relay.h"

namespace anchorhold::egress {

HttpExchange::HttpExchange(GuestConnection& connection, Stream& guest, Reader& reader, Kind kind)
    : connection_(connection), guest_(guest), reader_(reader), kind_(kind) {
  if (connection_.server_) server_reader_ = std::make_unique<Reader>(*connection_.server_);
}

Awaitable<void> HttpExchange::run() {
  Next next = Next::another;
  while (next == Next::another) {
    bool begins = co_await request_begins();
    if (!begins) co_return;
    next = co_await next_one();
  }
  if (next == Next::ends) co_await end();
}

Awaitable<void> HttpExchange::run_from(RequestHead first) {
  bool another = co_await one(std::move(first));
  if (another)
    co_await run();
  else
    co_await end();
}

Awaitable<void> HttpExchange::end() {
  if (connection_.server_) connection_.server_->cut();
  connection_.deadline_.in(connection_.proxy_.configuration()->limits.head);
  co_await linger(connection_.proxy_.loop(), guest_);
}

Awaitable<bool> HttpExchange::request_begins() {
  if (!reader_.bytes().empty()) co_return true;
  connection_.deadline_.in(connection_.proxy_.configuration()->limits.waiting);
  co_return co_await reader_.fill();
}

Awaitable<HttpExchange::Next> HttpExchange::next_one() {
  std::optional<RequestHead> head = co_await next_head();
  if (!head) co_return Next::over;
  bool another = co_await one(std::move(*head));
  co_return another ? Next::another : Next::ends;
}

Awaitable<std::optional<RequestHead>> HttpExchange::next_head() {
  auto limits = connection_.proxy_.configuration()->limits;
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
  std::optional<Refusal> refusal;
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

}  // namespace anchorhold::egress
