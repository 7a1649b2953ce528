// Connections to servers: the name is resolved now, every address of the answer is judged, and what is
// dialled is a judged address, never the name. Where the host's network has a proxy for the destination, the
// proxy is dialled instead and asked for the name.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "egress/control.h"
#include "own_addresses.h"
#include "resolver.h"
#include "tls_stream.h"

namespace anchorhold::egress {

// Where the guest may be taken, judged: before anything is dialled.
struct Route {
  policy::Destination destination;
  std::vector<policy::Address> addresses;  // judged; empty: only the proxy knows the name
  const UpstreamProxy* proxy = nullptr;    // points into the configuration
  std::string text() const;                // of where it goes, for events
};

struct Connection {
  std::unique_ptr<Stream> stream;
  std::optional<policy::Address> address;  // that was dialled; none through a proxy
};

class Dialer {
 public:
  Dialer(asio::io_context& loop, Resolver& resolver, OwnAddresses& own)
      : loop_(loop), resolver_(resolver), own_(own) {}

  // `plain`: one http:// request, which a proxy is given whole. permission_denied: an address is not allowed;
  // not_found, unavailable: the name has none.
  Awaitable<Result<Route>> route(policy::Destination destination, const policy::EgressDecision& decision,
                                 std::shared_ptr<const Configuration> configuration, bool plain);
  // `trust` verifies a proxy that is reached over TLS.
  Awaitable<Result<Connection>> dial(const Route& route, SSL_CTX* trust, bool plain,
                                     std::chrono::milliseconds limit);
  // Whether an open connection to this address would be dialled today.
  Status judge_again(const policy::EgressDecision& decision, const policy::Destination& destination,
                     const policy::Address& address);

 private:
  Awaitable<Result<Connection>> dial_any(std::vector<policy::Address> addresses, std::uint16_t port,
                                         std::chrono::milliseconds limit);
  Awaitable<Result<Connection>> dial_proxy(const UpstreamProxy& proxy, SSL_CTX* trust,
                                           std::chrono::milliseconds limit);
  Awaitable<Status> connect_through(Stream& stream, const UpstreamProxy& proxy,
                                    const policy::Destination& destination);

  asio::io_context& loop_;
  Resolver& resolver_;
  OwnAddresses& own_;
};

// The value of Proxy-Authorization, or nothing.
std::string proxy_authorization(const UpstreamProxy& proxy);

}  // namespace anchorhold::egress
