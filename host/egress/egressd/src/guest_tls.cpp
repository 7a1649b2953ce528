// Connections of the guest that begin with TLS: the ClientHello is held against the destination; then they
// are tunnelled unread, or opened.
#include <algorithm>
#include <fmt/format.h>

#include "guest_connection.h"
#include "http2_bridge.h"
#include "refusal.h"
#include "relay.h"

namespace anchorhold::egress {
namespace {

// RFC 8446 6.2: a fatal alert, access_denied, in a record that a client reads before it knows the version.
constexpr std::string_view access_denied("\x15\x03\x01\x00\x02\x02\x31", 7);

}  // namespace

Awaitable<void> GuestConnection::refuse_hello(std::string cause, bool violation) {
  EventReport report = report_of(EventKind::deny, std::move(cause));
  report.violation = violation;
  co_await record(std::move(report));
  deadline_.in(proxy_.configuration()->limits.head);
  bool told = co_await write_all(*guest_, access_denied);
  if (told) co_await linger(proxy_.loop(), *guest_);
}

std::string GuestConnection::fault_of(const ClientHello& hello) const {
  bool by_address = destination_->host.address().has_value();
  if (hello.server_name && *hello.server_name != destination_->host)
    return fmt::format("the TLS connection is for {}, and CONNECT said {}", hello.server_name->text(),
                       destination_->text());
  if (decided_.tunnel_only()) return {};
  if (!hello.server_name && !by_address)
    return fmt::format("the TLS connection does not say that it is for {}", destination_->host.text());
  if (hello.encrypted_hello && !decided_.inspecting())
    return "the TLS connection hides whom it is for (encrypted ClientHello)";
  return {};
}

Awaitable<std::optional<ClientHello>> GuestConnection::read_hello() {
  std::string cause;
  for (;;) {
    auto hello = parse_client_hello(reader_.bytes());
    if (!hello) {
      cause = hello.error().message;
      break;
    }
    if (*hello) {
      cause = fault_of(**hello);
      if (cause.empty()) co_return std::move(**hello);
      break;
    }
    if (!co_await reader_.fill()) co_return std::nullopt;
  }
  co_await refuse_hello(std::move(cause), true);
  co_return std::nullopt;
}

Awaitable<GuestConnection::Next> GuestConnection::look_inside_tls() {
  auto hello = co_await read_hello();
  if (!hello) co_return Next::over;
  if (!decided_.inspecting()) co_return Next::tunnel;
  co_return co_await intercept(std::move(*hello));
}

Awaitable<std::optional<Refusal>> GuestConnection::secure_server(std::vector<std::string> protocols) {
  const policy::Host& host = destination_->host;
  std::string name = host.address() ? host.address()->text() : host.text();
  auto tls = TlsStream::create(proxy_.trust(), std::move(server_));
  if (!tls) co_return refusal(502, report_of(EventKind::deny, tls.error().message));
  TlsStream& server = **tls;
  server_ = std::move(*tls);
  TimeLimit time(proxy_.loop(), server, proxy_.configuration()->limits.connect);
  auto shaken = co_await server.connect(name, host.address().has_value(), std::move(protocols));
  if (shaken) co_return std::nullopt;
  server_->cut();
  std::string cause = fmt::format("{}: {}", destination_->text(), shaken.error().message);
  co_return refusal(502, report_of(EventKind::deny, std::move(cause)));
}

// The server is asked first, so that the guest gets what the server speaks: the same protocol from end to
// end.
Awaitable<GuestConnection::Next> GuestConnection::intercept(ClientHello hello) {
  opened_ = true;
  std::vector<std::string> protocols;
  for (const std::string& protocol : hello.protocols)
    if (protocol == "http/1.1" || (protocol == "h2" && !decided_.signs())) protocols.push_back(protocol);
  auto refused = co_await secure_server(protocols);
  if (refused) {
    co_await explain_inside(std::move(*refused), hello);
    co_return Next::over;
  }
  std::string protocol = static_cast<TlsStream&>(*server_).protocol();
  auto certificate = proxy_.authority().certificate_for(destination_->host);
  auto tls = TlsStream::create(proxy_.authority().context(), *guest_, reader_.take_all());
  if (!certificate || !tls) {
    co_await record(report_of(EventKind::deny, "TLS with the guest failed"));
    co_return Next::over;
  }
  deadline_.in(decided_.configuration->limits.head);
  auto accepted = co_await (*tls)->accept(*certificate, proxy_.authority().leaf_key(), protocol);
  if (!accepted) {
    auto cause = fmt::format("TLS with the guest failed: {} (does it trust the session's certificate?)",
                             accepted.error().message);
    co_await record(report_of(EventKind::deny, std::move(cause)));
    co_return Next::over;
  }
  inside_ = std::move(*tls);
  co_return protocol == "h2" ? Next::http2 : Next::http;
}

Awaitable<void> GuestConnection::run_http2() {
  Http2Bridge bridge(*this, *inside_);
  bridge_ = &bridge;
  co_await bridge.run();
  bridge_ = nullptr;
}

std::unique_ptr<Stream> GuestConnection::let_go_of_server() {
  address_.reset();
  through_.reset();
  proxy_.memory_is_given_back();
  return std::move(server_);
}

Awaitable<std::optional<Refusal>> GuestConnection::dial_server() {
  auto refused = co_await dial_again(false);
  if (refused) co_return refused;
  std::vector<std::string> protocols{"h2"};
  refused = co_await secure_server(std::move(protocols));
  if (!refused && static_cast<TlsStream&>(*server_).protocol() != "h2") {
    auto cause = fmt::format("{} does not speak HTTP/2 any more", destination_->text());
    refused = refusal(502, report_of(EventKind::deny, std::move(cause)));
  }
  if (refused) {
    server_.reset();
    address_.reset();
  }
  co_return refused;
}

Awaitable<void> GuestConnection::explain_inside(Refusal why, const ClientHello& hello) {
  auto certificate = proxy_.authority().certificate_for(destination_->host);
  auto tls = TlsStream::create(proxy_.authority().context(), *guest_, reader_.take_all());
  bool speaks = hello.protocols.empty() || std::find(hello.protocols.begin(), hello.protocols.end(),
                                                     "http/1.1") != hello.protocols.end();
  deadline_.in(proxy_.configuration()->limits.head);
  std::string protocol = hello.protocols.empty() ? "" : "http/1.1";
  bool ready = certificate && tls && speaks;
  if (ready) {
    auto accepted = co_await (*tls)->accept(*certificate, proxy_.authority().leaf_key(), std::move(protocol));
    ready = accepted.has_value();
  }
  if (!ready) {
    co_await record(std::move(why.report));
    co_return;
  }
  Reader inside(**tls);
  // The answer belongs to a request; what it says is not looked at.
  while (inside.bytes().find("\r\n\r\n") == std::string_view::npos && inside.bytes().size() < max_head_bytes)
    if (!co_await inside.fill()) break;
  co_await refuse(**tls, std::move(why));
}

}  // namespace anchorhold::egress
