#include "guest_connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fmt/format.h>

#include "http2_bridge.h"
#include "http_exchange.h"
#include "refusal.h"
#include "relay.h"

namespace anchorhold::egress {
namespace {

constexpr std::uint16_t https_port = 443, http_port = 80;

unsigned status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::permission_denied:
      return 403;
    case ErrorCode::deadline_exceeded:
      return 504;
    default:
      return 502;
  }
}

}  // namespace

GuestConnection::GuestConnection(Proxy& proxy, std::unique_ptr<Stream> guest)
    : proxy_(proxy), guest_(std::move(guest)), reader_(*guest_) {}

GuestConnection::~GuestConnection() = default;

EventReport GuestConnection::report_of(EventKind kind, std::string cause) const {
  EventReport report;
  report.kind = kind;
  report.cause = std::move(cause);
  if (destination_) {
    report.host = destination_->host.text();
    report.port = destination_->port;
  }
  if (decided_.decision.rule) report.rule = decided_.decision.rule->source;
  if (decided_.decision.origin) report.origin = policy::to_string(*decided_.decision.origin);
  if (through_)
    report.address = fmt::format("proxy {}", through_->address.text());
  else if (address_)
    report.address = address_->text();
  return report;
}

Refusal GuestConnection::refusal(unsigned status, EventReport report) {
  return {status, std::move(report), {}};
}

Awaitable<bool> GuestConnection::record(EventReport report) {
  co_return co_await proxy_.host().record(report);
}

Awaitable<Result<std::string>> GuestConnection::secret(SecretRequest request) {
  co_return co_await proxy_.host().secret(std::move(request));
}

void GuestConnection::moves() {
  resting_ = false;
  deadline_.in(decided_.configuration->limits.quiet);
}

void GuestConnection::rests(std::chrono::milliseconds limit) {
  resting_ = true;
  deadline_.in(limit);
}

void GuestConnection::time_is_over() {
  if (!std::exchange(resting_, false) || !bridge_) return cut();
  deadline_.in(decided_.configuration->limits.head);
  bridge_->time_is_over();
}

void GuestConnection::cut() {
  guest_->cut();
  if (server_) server_->cut();
}

void GuestConnection::judge_again() {
  if (!destination_ || cut_ || !decided_.configuration) return;
  Decided now = proxy_.decide_now(*destination_);
  bool still_once = decided_.once && now.decision.action == policy::EgressAction::ask;
  std::string cause;
  if (!now.allowed() && !still_once)
    cause = now.decision.reason;
  else if (!still_once && (server_ || inside_) && now.inspecting() != decided_.inspecting())
    cause = "the rule says now whether the connection is opened, and did not before";
  else if (address_)
    if (auto judged = proxy_.dialer().judge_again(still_once ? decided_.decision : now.decision,
                                                  *destination_, *address_);
        !judged)
      cause = judged.error().message;
  if (cause.empty()) {
    // Later requests are judged by the new rule; the old decision stays where its pointer leads into.
    if (!still_once) decided_ = std::move(now);
    return;
  }
  cut_ = true;
  EventReport report = report_of(EventKind::deny, std::move(cause));
  report.cut = true;
  cut();
  asio::co_spawn(
      proxy_.loop(),
      [](std::shared_ptr<GuestConnection> self, EventReport what) -> Awaitable<void> {
        co_await self->record(std::move(what));
      }(shared_from_this(), std::move(report)),
      asio::detached);
}

Awaitable<void> GuestConnection::refuse(Stream& guest, Refusal why) {
  unsigned status = why.status;
  EventReport report = std::move(why.report);
  if (!co_await record(report)) report.cause += " (and it could not be recorded)";
  std::string response = refusal_response(status, report, why.form);
  deadline_.in(proxy_.configuration()->limits.head);
  bool told = co_await write_all(guest, response);
  if (told) co_await linger(proxy_.loop(), guest);
}

Awaitable<std::optional<RequestHead>> GuestConnection::read_first_head() {
  auto configuration = proxy_.configuration();
  deadline_.in(configuration->limits.head);
  for (;;) {
    auto parsed = parse_request_head(reader_.bytes(), http_port);
    if (!parsed) {
      EventReport report = report_of(EventKind::deny, parsed.error().message);
      report.violation = true;
      co_await refuse(*guest_, refusal(400, std::move(report)));
      co_return std::nullopt;
    }
    if (*parsed) {
      reader_.consume((*parsed)->size);
      co_return std::move((*parsed)->head);
    }
    if (!co_await reader_.fill()) co_return std::nullopt;
  }
}

Awaitable<void> GuestConnection::run() {
  auto self = shared_from_this();
  Next next = co_await begin();
  if (next == Next::inside) next = co_await look_inside();
  if (next == Next::raw)
    co_await run_raw();
  else if (next == Next::tunnel)
    co_await tunnel();
  else if (next == Next::http)
    co_await run_http();
  else if (next == Next::http2)
    co_await run_http2();
}

Awaitable<GuestConnection::Next> GuestConnection::begin() {
  auto head = co_await read_first_head();
  if (!head) co_return Next::over;
  if (head->form == RequestHead::Form::connect) co_return co_await connect(std::move(*head));
  if (head->form == RequestHead::Form::absolute) {
    opened_ = true;
    HttpExchange exchange(*this, *guest_, reader_, HttpExchange::Kind::proxied);
    co_await exchange.run_from(std::move(*head));
    co_return Next::over;
  }
  EventReport report = report_of(EventKind::deny, "this is a proxy: a request names its destination");
  report.host = head->destination.host.text();
  report.port = head->destination.port;
  co_await refuse(*guest_, refusal(400, std::move(report)));
  co_return Next::over;
}

Awaitable<std::optional<Refusal>> GuestConnection::reach(Wanted wanted, bool plain) {
  if (server_) {
    server_->cut();
    server_.reset();
  }
  address_.reset();
  through_.reset();
  decided_ = {};
  destination_ = wanted.destination;
  auto configuration = proxy_.configuration();
  deadline_.in(configuration->ask_timeout + configuration->limits.connect * 3);
  decided_ = co_await proxy_.decide(std::move(wanted));
  if (!decided_.allowed()) co_return refusal(403, report_of(EventKind::deny, decided_.decision.reason));
  if (decided_.inspecting() && decided_.tunnel_only())
    co_return refusal(403, report_of(EventKind::deny, "the rule says both to open connections and never to"));
  co_return co_await dial_again(plain);
}

Awaitable<std::optional<Refusal>> GuestConnection::dial_again(bool plain) {
  Decided decided = decided_;
  auto limits = decided.configuration->limits;
  deadline_.in(limits.connect * 3);
  auto route = co_await proxy_.dialer().route(*destination_, decided.decision, decided.configuration, plain);
  if (!route)
    co_return refusal(status_of(route.error().code), report_of(EventKind::deny, route.error().message));
  EventReport report = report_of(EventKind::allow, decided.decision.reason);
  report.address = route->text();
  if (!co_await record(std::move(report)))
    co_return refusal(403, report_of(EventKind::deny, "what is allowed must be recorded, and was not"));
  auto connection = co_await proxy_.dialer().dial(*route, proxy_.trust(), plain, limits.connect);
  if (!connection) {
    auto cause = fmt::format("{} cannot be reached: {}", destination_->text(), connection.error().message);
    co_return refusal(status_of(connection.error().code), report_of(EventKind::deny, std::move(cause)));
  }
  // The policy may have changed while this waited; then judge_again() found nothing to cut yet.
  if (cut_) co_return refusal(403, report_of(EventKind::deny, "the policy changed meanwhile"));
  server_ = std::move(connection->stream);
  address_ = connection->address;
  through_ = {decided.configuration, route->proxy};
  co_return std::nullopt;
}

Awaitable<GuestConnection::Next> GuestConnection::connect(RequestHead head) {
  Wanted wanted{.destination = head.destination};
  auto refused = co_await reach(std::move(wanted), false);
  if (refused) {
    co_await refuse(*guest_, std::move(*refused));
    co_return Next::over;
  }
  bool told = co_await write_all(*guest_, "HTTP/1.1 200 Connection established\r\n\r\n");
  co_return told ? Next::inside : Next::over;
}

// What the port is for decides what may be spoken; elsewhere the first byte of the guest does, and where the
// rule says that nothing is ever opened, the server may speak first.
Awaitable<GuestConnection::Next> GuestConnection::look_inside() {
  std::uint16_t port = destination_->port;
  if (decided_.tunnel_only() && port != https_port && port != http_port) co_return Next::raw;
  deadline_.in(decided_.configuration->limits.waiting);
  bool more = !reader_.bytes().empty();
  if (!more) more = co_await reader_.fill();
  if (!more) co_return Next::over;
  deadline_.in(decided_.configuration->limits.head);
  bool tls = begins_tls(reader_.bytes()[0]);
  if (tls && port == http_port) {
    co_await refuse_hello("TLS does not belong on port 80", true);
    co_return Next::over;
  }
  if (tls) co_return co_await look_inside_tls();
  if (port == https_port) {
    EventReport report = report_of(EventKind::deny, "only TLS belongs on port 443");
    report.violation = true;
    co_await refuse(*guest_, refusal(403, std::move(report)));
    co_return Next::over;
  }
  opened_ = true;
  co_return Next::http;
}

Awaitable<void> GuestConnection::run_http() {
  if (!inside_) {
    HttpExchange exchange(*this, *guest_, reader_, HttpExchange::Kind::inside);
    co_await exchange.run();
    co_return;
  }
  Reader inside(*inside_);
  HttpExchange exchange(*this, *inside_, inside, HttpExchange::Kind::inside_tls);
  co_await exchange.run();
}

Awaitable<void> GuestConnection::run_raw() {
  // The guest's first bytes are looked at when they come; until then only the server speaks.
  auto limits = decided_.configuration->limits;
  auto first = [this] { return pass_first_bytes(); };
  RelaySpec spec{proxy_.loop(), proxy_.relay_loops(), *guest_, *server_, deadline_, limits, first};
  co_await relay(std::move(spec));
}

Awaitable<bool> GuestConnection::pass_first_bytes() {
  bool more = !reader_.bytes().empty();
  if (!more) more = co_await reader_.fill();
  if (!more) co_return true;  // it has nothing to say
  if (begins_tls(reader_.bytes()[0])) {
    auto hello = co_await read_hello();
    if (!hello) co_return false;
  }
  std::string bytes = reader_.take_all();
  co_return co_await write_all(*server_, bytes);
}

Awaitable<void> GuestConnection::tunnel() {
  std::string first = reader_.take_all();
  bool sent = co_await write_all(*server_, first);
  if (!sent) co_return;
  first = {};
  auto limits = decided_.configuration->limits;
  RelaySpec spec{proxy_.loop(), proxy_.relay_loops(), *guest_, *server_, deadline_, limits, {}};
  co_await relay(std::move(spec));
}

}  // namespace anchorhold::egress
