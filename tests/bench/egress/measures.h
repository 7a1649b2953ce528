// What is measured of a proxy, by the clients of a guest: each opens streams in its own way, and the sites
// are the same for all.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "site.h"

namespace anchorhold::testing {

// The sites: bytes as guest_measure.h says, HTTP in TLS, HTTP, and HTTP/2.
inline const std::string raw = "44.128.1.1:9000", secure = "44.128.1.2:443", plain = "44.128.1.3:80",
                         newer = "44.128.1.4:443";
// For each figure.
extern std::chrono::milliseconds run_time;

// A stream to a proxy; without a descriptor when there is none.
using Open = std::function<Wire()>;
Wire dial(std::uint16_t port);                   // on this machine
Wire dial_site(const std::string& destination);  // the server itself
bool through(Wire& wire, const std::string& destination);

// Each for a second.
double connections(const Open& open);
double round_trips(const Open& open);
double tunnelled(const Open& open);  // MiB
double plain_requests(const Open& open);
double opened_requests(const Open& open, const std::string& trust);
double opened_bytes(const Open& open, const std::string& trust);  // MiB
// With TLS from both sides and one request each.
double opened_connections(const Open& open, const std::string& trust);
// The median of one client's, in microseconds; `direct`: no proxy is between. Negative: it did not work.
double tunnel_latency(const Open& open, bool direct);
double opened_latency(const Open& open, const std::string& trust, bool direct);

}  // namespace anchorhold::testing
