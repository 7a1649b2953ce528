// The agent's way to pages of the web (agent/web_access.h), over a session's way out: the same decision as
// for its guest, and it works without a guest.
#pragma once

#include "agent/web_access.h"
#include "session/session.h"

namespace anchorhold::session {

// What these rules let a session reach, in words for the model; pure.
agent::NetworkReach reach_of(const policy::EgressPolicy& rules, policy::Person person);

class SessionWeb : public agent::WebAccess {
 public:
  // The session outlives it.
  explicit SessionWeb(Session& session) : session_(session) {}
  agent::NetworkReach reach() const override;
  Result<agent::WebPage> fetch(const std::string& url, std::stop_token stop) override;

 private:
  Session& session_;
};

}  // namespace anchorhold::session
