// What the guest asks in HTTP/2, on its way to the server.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fmt/format.h>

#include "base/secret.h"
#include "http2_bridge.h"

namespace anchorhold::egress {

void Http2Bridge::take_request(std::int32_t id, std::vector<Field> fields, bool ends) {
  connection_.moves();
  auto exchange = std::make_shared<Exchange>();
  exchange->guest_id = id;
  exchange->up.ends = ends;
  by_guest_[id] = exchange;
  auto head = request_head_of_http2(std::move(fields), ends);
  if (!head) {
    EventReport report = connection_.report_of(EventKind::deny, head.error().message);
    report.violation = true;
    refuse(exchange, 400, std::move(report));
    return;
  }
  exchange->head = std::move(*head);
  judge(exchange);
}

void Http2Bridge::judge(const Shared& exchange) {
  Decided decided = connection_.decided();
  const auto& configuration = *decided.configuration;
  const policy::EgressRule* rule = decided.decision.rule;
  RequestContext context{connection_.destination(), rule, configuration.credentials,
                         configuration.session_token, true};
  RequestJudgement judgement = judge_inner_request(exchange->head, context);
  if (rule && rule->max_upload) {
    exchange->most = rule->max_upload->bytes;
    exchange->refused_beyond = fmt::format("a body of more than {} is not allowed by the rule for {} ({})",
                                           to_string(*rule->max_upload), rule->host.text(), rule->source);
  }
  if (judgement.verdict == RequestJudgement::Verdict::refuse) {
    auto kind = judgement.foreign_credential ? EventKind::credential_reject : EventKind::deny;
    EventReport report = connection_.report_of(kind, judgement.reason);
    report.violation = judgement.violation;
    if (rule) report.credential = rule->credential;
    refuse(exchange, judgement.status, std::move(report), {.challenge = judgement.challenge});
  } else if (judgement.git && judgement.git->carries_commands && !exchange->push) {
    begin_push(exchange, *judgement.git);
  } else if (judgement.git) {
    ++running_;
    asio::co_spawn(connection_.loop(), admit_git(exchange, std::move(judgement), std::move(decided)),
                   asio::detached);
  } else {
    go_on(exchange, std::move(judgement), std::move(decided));
  }
}

void Http2Bridge::go_on(const Shared& exchange, RequestJudgement judgement, Decided decided) {
  const auto& configuration = *decided.configuration;
  bool swap = judgement.verdict == RequestJudgement::Verdict::swap;
  if (swap && judgement.form->kind == CredentialForm::Kind::aws_sigv4) {
    // Such connections speak HTTP/1.1; this one began before the credential was of that kind.
    refuse(exchange, 403,
           connection_.report_of(EventKind::deny, "requests are signed again over HTTP/1.1 only"));
    return;
  }
  const policy::EgressRule* rule = decided.decision.rule;
  std::string token = swap ? std::string() : configuration.session_token;
  std::vector<std::string> fields = rule ? rule->deny_json_fields : std::vector<std::string>();
  exchange->up.filter = request_filter(std::move(token), std::move(fields));
  if (exchange->push) {
    std::string held = std::move(exchange->held);
    exchange->held.clear();
    exchange->push.reset();
    add_body(exchange, held);
    if (exchange->refused) return;
  }
  if (server_) return send(exchange, std::move(judgement), std::move(decided));
  ++running_;
  asio::co_spawn(connection_.loop(), reach(exchange, std::move(judgement), std::move(decided)),
                 asio::detached);
}

// Dialled once for all that wait for it.
Awaitable<void> Http2Bridge::reach(Shared exchange, RequestJudgement judgement, Decided decided) {
  if (dialling_) {
    co_await dialled_.wait();
  } else {
    dialling_ = true;
    dialled_.reset();
    auto refused = co_await connection_.dial_server();
    unreachable_ = std::move(refused);
    dialling_ = false;
    if (guest_gone_.is_set() && !unreachable_)
      connection_.server()->cut();
    else if (!unreachable_)
      begin_server();
    dialled_.set();
    connection_.moves();
  }
  const bool open = !guest_gone_.is_set() && of_guest(exchange->guest_id) == exchange && !exchange->refused;
  if (open && unreachable_)
    refuse(exchange, unreachable_->status, unreachable_->report, unreachable_->form);
  else if (open)
    send(exchange, std::move(judgement), std::move(decided));
  rest_if_idle();
  if (--running_ == 0) ended_.set();
}

void Http2Bridge::send(const Shared& exchange, RequestJudgement judgement, Decided decided) {
  if (judgement.verdict != RequestJudgement::Verdict::swap) return forward(exchange, -1);
  ++running_;
  asio::co_spawn(connection_.loop(), swap_secret(exchange, std::move(judgement), std::move(decided)),
                 asio::detached);
}

Awaitable<void> Http2Bridge::swap_secret(Shared exchange, RequestJudgement judgement, Decided decided) {
  RequestHead& head = exchange->head;
  SecretRequest request{.id = 0,
                        .credential = decided.decision.rule->credential,
                        .destination = head.destination,
                        .method = head.method,
                        .path = head.path};
  EventReport report = connection_.report_of(EventKind::credential_use, {});
  report.credential = request.credential;
  report.method = head.method;
  report.path = head.path;
  auto secret = co_await connection_.secret(std::move(request));
  bool recorded = false;
  if (secret) recorded = co_await connection_.record(report);
  if (recorded) {
    std::string& value = head.fields[judgement.field].value;
    value = field_with_secret(*judgement.form, *secret);
    exchange->secret_patterns = secret_patterns(*secret, value);
    exchange->credential = true;
    wipe(*secret);
    const bool open = of_guest(exchange->guest_id) == exchange && !exchange->refused;
    if (open) forward(exchange, static_cast<std::ptrdiff_t>(judgement.field));
    wipe(value);
  } else {
    report.kind = EventKind::deny;
    report.cause = secret ? "the use of a credential must be recorded, and was not"
                          : fmt::format("the credential {} could not be had: {}", report.credential,
                                        secret.error().message);
    if (of_guest(exchange->guest_id)) refuse(exchange, 403, std::move(report));
  }
  if (--running_ == 0) ended_.set();
}

void Http2Bridge::forward(const Shared& exchange, std::ptrdiff_t secret_field) {
  auto fields = http2_fields_of(exchange->head, exchange->credential);
  std::ptrdiff_t sensitive = -1;
  if (secret_field >= 0) {
    const std::string& value = exchange->head.fields[static_cast<std::size_t>(secret_field)].value;
    for (std::size_t i = 0; i < fields.size(); ++i)
      if (fields[i].value == value) sensitive = static_cast<std::ptrdiff_t>(i);
  }
  bool has_body = exchange->head.body.kind != BodyFraming::Kind::none;
  std::int32_t id = server_gone_ ? -1 : server_->request(fields, has_body, sensitive);
  if (sensitive >= 0) wipe(fields[static_cast<std::size_t>(sensitive)].value);
  if (id < 0) {  // the server takes no more: the guest may try again on a new connection
    guest_->reset(exchange->guest_id, NGHTTP2_REFUSED_STREAM);
    return;
  }
  exchange->server_id = id;
  by_server_[id] = exchange;
}

void Http2Bridge::take_body(const Shared& exchange, std::string_view bytes) {
  connection_.moves();
  if (exchange->refused) {
    guest_->passed_on(exchange->guest_id, bytes.size());
    return;
  }
  if (exchange->push)
    take_commands(exchange, bytes, false);
  else
    add_body(exchange, bytes);
}

void Http2Bridge::add_body(const Shared& exchange, std::string_view bytes) {
  Flow& up = exchange->up;
  up.total += bytes.size();
  std::string fault;
  if (exchange->most && up.total > *exchange->most) fault = exchange->refused_beyond;
  if (fault.empty() && up.filter) {
    if (auto passed = up.filter->pass(bytes, up.waiting); !passed) fault = passed.error().message;
  } else if (fault.empty()) {
    up.waiting += bytes;
  }
  if (!fault.empty()) {
    guest_->passed_on(exchange->guest_id, bytes.size());
    refuse(exchange, 403, connection_.report_of(EventKind::deny, std::move(fault)));
    return;
  }
  if (exchange->server_id >= 0) server_->resume(exchange->server_id);
}

void Http2Bridge::end_request(const Shared& exchange, std::vector<Field> trailers) {
  if (exchange->refused) {
    exchange->up.ends = true;
    if (exchange->at_end) answer_refused(exchange, std::move(*exchange->at_end));
    return;
  }
  if (auto judged = judge_trailers(trailers, connection_.decided().configuration->session_token); !judged) {
    refuse(exchange, 403, connection_.report_of(EventKind::deny, judged.error().message));
    return;
  }
  exchange->up.trailers = std::move(trailers);
  exchange->up.ends = true;
  if (exchange->push) take_commands(exchange, {}, true);
  if (exchange->server_id >= 0) server_->resume(exchange->server_id);
}

}  // namespace anchorhold::egress
