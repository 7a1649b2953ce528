// The unit tests of the agent, with a real guest in the place of an ordinary process.
#pragma once

#include <gtest/gtest.h>

#include "guest_harness.h"
#include "session/guest_client.h"

namespace anchorhold::session {

class HostedAgent {
 public:
  HostedAgent() : guest_(testing::shared_guest()) {
    // The guest is shared: what another test left is not this one's business.
    auto left = client().list_execs();
    for (const auto& exec : *left) (void)client().kill_background(exec.id, true);
    while (!client().list_execs().value().empty()) {
    }
  }
  GuestClient& client() { return guest_.client(); }

 private:
  testing::RealGuest& guest_;
};

inline constexpr bool agent_is_root = true;
inline std::string default_uid() {
  return "1000";
}

}  // namespace anchorhold::session
