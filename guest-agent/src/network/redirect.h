// Where the guest's packets go: nowhere but to the agent, IPv4 and IPv6 alike. TCP to any address but the
// guest's own arrives at the transparent port, DNS queries to any server at the stub; other UDP is refused at
// once, and the rest (ICMP, raw packets) ends in a device that forgets it. Needs the rights of PID 1.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace anchorhold::guest {

struct RedirectPorts {
  std::uint16_t transparent = 0;
  std::uint16_t dns = 53;
};

// Once; again changes nothing.
Status redirect_everything(const RedirectPorts& ports);

}  // namespace anchorhold::guest
