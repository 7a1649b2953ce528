// What a session may reach on the network. None: its guest has no way out at all.
#pragma once

#include "egress/door.h"

namespace anchorhold::session {

class Credentials;

struct EgressSpec {
  egress::DoorPolicy policy;
  // The person's folder (policy/person_rules.h), of which policy has the rules already: watched for what
  // changes in it, and where answers are kept. Empty: neither.
  std::filesystem::path rules;
  egress::ResolverSpec resolver;
  egress::UpstreamProxies proxies;
  egress::TrustSpec trust;
  // Fills in policy.credentials; none: a rule that names a credential denies.
  std::shared_ptr<Credentials> credentials{};
};

}  // namespace anchorhold::session
