// How the host itself reaches the network: its resolver, its proxies, whom it trusts. Read on the host, where
// the person's settings are, and passed to the sealed egress process; the guest sees none of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "policy/destination.h"

namespace anchorhold::egress {

struct ResolverSpec {
  // "192.0.2.1", "192.0.2.1:5353", "[2001:db8::1]:53"; in the order they are asked.
  std::vector<std::string> servers;
  std::chrono::milliseconds timeout = std::chrono::seconds(3);  // of one attempt
  int attempts = 2;                                             // at each server

  // The nameservers of resolv.conf(5).
  static Result<ResolverSpec> of_host(const std::filesystem::path& resolv_conf = "/etc/resolv.conf");
};

// A proxy of the host's network. Credentials are sent to it as Basic (RFC 7617) and to nobody else.
struct UpstreamProxy {
  bool tls = false;  // https://: TLS to the proxy itself
  policy::Destination address;
  std::string user;  // empty: none
  std::string password;

  // "http://user:password@proxy.example:3128", "https://…"; a bare "proxy:3128" is http.
  static Result<UpstreamProxy> parse(std::string_view url);
};

struct UpstreamProxies {
  std::optional<UpstreamProxy> http;   // for http://
  std::optional<UpstreamProxy> https;  // for everything that is connected through
  // "*", "example.com" (and all below), ".example.com", an address or a block; a port may follow a name.
  std::vector<std::string> no_proxy;

  // http_proxy, HTTPS_PROXY, https_proxy, ALL_PROXY, all_proxy, NO_PROXY, no_proxy, as curl reads them:
  // HTTP_PROXY in capitals is not read.
  static Result<UpstreamProxies> from_environment(
      const std::function<const char*(const char*)>& environment = nullptr);
  // The proxy for this destination, or none. `plain`: an http:// request.
  const UpstreamProxy* for_destination(const policy::Destination& destination, bool plain) const;
};

// How long a connection of the guest may take for what it does.
struct ConnectionLimits {
  std::chrono::milliseconds head =
      std::chrono::seconds(30);  // from its first byte to its last; a ClientHello too
  std::chrono::milliseconds connect = std::chrono::seconds(15);  // to the server, with TLS
  std::chrono::milliseconds waiting = std::chrono::minutes(5);   // between two requests
  std::chrono::milliseconds quiet = std::chrono::hours(2);       // nothing moves in either direction
  std::chrono::milliseconds unused =
      std::chrono::seconds(5);  // a server that speaks HTTP/2 is kept without a stream
  std::chrono::milliseconds half_closed = std::chrono::minutes(10);  // nothing moves, and one side has ended
  std::uint32_t connections = 12'000;                                // of one guest at a time
};

// Certificates that upstream servers are verified against.
struct TrustSpec {
  std::filesystem::path system_bundle;          // empty: the system's own, wherever OpenSSL has it
  std::vector<std::filesystem::path> extra_ca;  // PEM files
  bool system = true;

  // Everything as one PEM text. A file that cannot be read or holds no certificate is an error.
  Result<std::string> pem() const;
};

}  // namespace anchorhold::egress
