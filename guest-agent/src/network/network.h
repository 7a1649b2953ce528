// The guest's way to the network: a proxy, a DNS stub and a redirect of everything else, all of which ask the
// host for connections by name. A convenience for programs: what may be reached is decided on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::guest {

inline constexpr std::uint16_t proxy_port = 1080;
inline constexpr std::uint16_t transparent_port = 1081;
// More than the host takes, so that it is the one to say no, with its reason.
inline constexpr std::size_t max_connections = 12'288;

// Runs on a thread of its own until it is destroyed.
class Network {
 public:
  struct Ports {
    // 0: any; what it became is in ports().
    std::uint16_t proxy = proxy_port, transparent = transparent_port, dns = 53;
  };
  // Starts to listen. `dial`: see ConnectionHost; none: the host's egress port.
  static Result<std::unique_ptr<Network>> start(Ports ports, std::function<Result<UniqueFd>()> dial = {});
  virtual ~Network() = default;
  virtual Ports ports() const = 0;
};

}  // namespace anchorhold::guest
