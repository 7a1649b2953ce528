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

Http2Bridge::Http2Bridge(GuestConnection& connection, Stream& guest)
    : connection_(connection),
      guest_stream_(guest),
      guest_events_(std::make_unique<GuestEvents>(*this)),
      server_events_(std::make_unique<ServerEvents>(*this)),
      ended_(connection.proxy_.loop()) {
  auto& loop = connection.proxy_.loop();
  guest_ = std::make_unique<Http2Session>(loop, guest, Http2Session::Side::server, *guest_events_);
  server_ =
      std::make_unique<Http2Session>(loop, *connection.server_, Http2Session::Side::client, *server_events_);
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
  connection_.server_->cut();
  auto open = by_server_;
  for (const auto& [id, exchange] : open) server_closed(id, NGHTTP2_INTERNAL_ERROR);
  guest_->announce_end();
  if (by_guest_.empty()) guest_->end();
}

void Http2Bridge::guest_is_gone() {
  guest_->end();
  server_->end();
  guest_stream_.cut();
  connection_.server_->cut();
}

Awaitable<void> Http2Bridge::run() {
  auto& loop = connection_.proxy_.loop();
  connection_.deadline_.in(connection_.decided_.configuration->limits.quiet);
  running_ = 4;
  for (Http2Session* session : {guest_.get(), server_.get()})
    for (bool reads : {true, false}) asio::co_spawn(loop, side(*session, reads), asio::detached);
  co_await ended_.wait();
  if (guest_->fault().empty()) co_return;
  EventReport report = connection_.report_of(EventKind::deny, "HTTP/2: " + guest_->fault());
  report.violation = true;
  co_await connection_.record(std::move(report));
}

void Http2Bridge::take_request(std::int32_t id, std::vector<Field> fields, bool ends) {
  connection_.deadline_.in(connection_.decided_.configuration->limits.quiet);
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
  Decided decided = connection_.decided_;
  const auto& configuration = *decided.configuration;
  const policy::EgressRule* rule = decided.decision.rule;
  RequestContext context{*connection_.destination_, rule, configuration.credentials,
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
    asio::co_spawn(connection_.proxy_.loop(), admit_git(exchange, std::move(judgement), std::move(decided)),
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
  if (swap) {
    ++running_;
    asio::co_spawn(connection_.proxy_.loop(), swap_secret(exchange, std::move(judgement), std::move(decided)),
                   asio::detached);
  } else {
    forward(exchange, -1);
  }
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
  auto secret = co_await connection_.proxy_.host().secret(std::move(request));
  bool recorded = false;
  if (secret) recorded = co_await connection_.record(report);
  if (recorded) {
    std::string& value = head.fields[judgement.field].value;
    value = field_with_secret(*judgement.form, *secret);
    exchange->secret_patterns = secret_patterns(*secret, value);
    exchange->credential = true;
    wipe(*secret);
    if (of_guest(exchange->guest_id)) forward(exchange, static_cast<std::ptrdiff_t>(judgement.field));
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
  connection_.deadline_.in(connection_.decided_.configuration->limits.quiet);
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
  if (auto judged = judge_trailers(trailers, connection_.decided_.configuration->session_token); !judged) {
    refuse(exchange, 403, connection_.report_of(EventKind::deny, judged.error().message));
    return;
  }
  exchange->up.trailers = std::move(trailers);
  exchange->up.ends = true;
  if (exchange->push) take_commands(exchange, {}, true);
  if (exchange->server_id >= 0) server_->resume(exchange->server_id);
}

// The guest gets its answer from here; the server, if it has the request already, is told to forget it.
void Http2Bridge::refuse(const Shared& exchange, unsigned status, EventReport report, RefusalForm form) {
  if (exchange->refused) return;
  exchange->refused = true;
  guest_->passed_on(exchange->guest_id, exchange->held.size());
  std::string().swap(exchange->held);
  const auto* rule = connection_.decided_.decision.rule;
  form.plain_text = rule && !rule->git.empty();
  if (exchange->server_id >= 0) {
    server_->reset(exchange->server_id, NGHTTP2_CANCEL);
    by_server_.erase(exchange->server_id);
  }
  report.method = exchange->head.method;
  report.path = exchange->head.path;
  ++running_;
  asio::co_spawn(connection_.proxy_.loop(),
                 refuse_recorded(exchange, status, std::move(report), std::move(form)), asio::detached);
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

void Http2Bridge::take_response(const Shared& exchange, std::vector<Field> fields, bool ends) {
  auto response = response_of_http2(std::move(fields));
  std::string fault;
  if (!response) {
    fault = response.error().message;
  } else if (exchange->credential && response->status >= 200) {
    for (std::string_view coding : values_of(response->fields, "content-encoding"))
      if (coding != "identity")
        fault = "its response is compressed, and cannot be searched for the credential";
  }
  if (!fault.empty()) {
    auto cause =
        fmt::format("{} did not answer as a server does: {}", connection_.destination_->text(), fault);
    refuse(exchange, 502, connection_.report_of(EventKind::deny, std::move(cause)));
    return;
  }
  std::vector<Field> forwarded{{":status", std::to_string(response->status)}};
  for (Field& field : response->fields) {
    field.value = scrubbed(field.value, exchange->secret_patterns);
    forwarded.push_back(std::move(field));
  }
  if (response->status < 200) {
    guest_->interim(exchange->guest_id, forwarded);
    return;
  }
  exchange->responded = true;
  exchange->down.ends = ends;
  if (!exchange->secret_patterns.empty()) exchange->down.filter = scrub_secrets(exchange->secret_patterns);
  guest_->respond(exchange->guest_id, forwarded, !ends);
}

void Http2Bridge::take_response_body(const Shared& exchange, std::string_view bytes) {
  connection_.deadline_.in(connection_.decided_.configuration->limits.quiet);
  Flow& down = exchange->down;
  if (down.filter)
    (void)down.filter->pass(bytes, down.waiting);
  else
    down.waiting += bytes;
  guest_->resume(exchange->guest_id);
}

void Http2Bridge::end_response(const Shared& exchange, std::vector<Field> trailers) {
  Flow& down = exchange->down;
  if (down.filter) (void)down.filter->finish(down.waiting);
  for (Field& field : trailers) field.value = scrubbed(field.value, exchange->secret_patterns);
  down.trailers = std::move(trailers);
  down.ends = true;
  guest_->resume(exchange->guest_id);
}

}  // namespace anchorhold::egress
