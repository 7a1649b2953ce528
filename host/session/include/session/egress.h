// What a session may reach on the network. None: its guest has no way out at all.
#pragma once

#include "egress/door.h"

namespace anchorhold::session {

struct EgressSpec {
  egress::DoorPolicy policy;
  egress::ResolverSpec resolver;
  egress::UpstreamProxies proxies;
  egress::TrustSpec trust;
};

}  // namespace anchorhold::session
