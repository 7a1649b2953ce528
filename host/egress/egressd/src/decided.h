// What was decided about a destination, and what is known when that is done.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "egress/control.h"
#include "policy/egress_policy.h"

namespace anchorhold::egress {

// A decision with the configuration that its rule lives in.
struct Decided {
  policy::EgressDecision decision;
  std::shared_ptr<const Configuration> configuration;
  bool once = false;  // a person allowed it for this time

  bool allowed() const { return decision.action == policy::EgressAction::allow; }
  bool inspecting() const { return decision.rule && decision.rule->inspecting(); }
  bool tunnel_only() const { return decision.rule && decision.rule->tunnel_only; }
  // Its requests are signed again.
  bool signs() const {
    if (!decision.rule || decision.rule->credential.empty()) return false;
    auto found = configuration->credentials.find(decision.rule->credential);
    return found != configuration->credentials.end() && found->second.kind == CredentialForm::Kind::aws_sigv4;
  }
};

// What is known of a request when its destination is decided.
struct Wanted {
  policy::Destination destination;
  std::string method{};  // empty: a CONNECT
  std::string path{};
  std::uint64_t bytes_waiting = 0;
};

}  // namespace anchorhold::egress
