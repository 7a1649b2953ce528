// The host's handle on one guest's way out: the sealed process anchorhold-egressd, which reads what the guest
// sends, so that this process never does. The session starts a Door before the guest, gives it every stream
// that the guest opens to the egress port (adopt), and changes its policy while connections are open. The
// process holds policy, resolver, trust and the session's CA key in its memory and nothing else; it asks here
// when a person must decide and when a request needs a secret, and everything it decides is recorded here
// before the guest learns of it. When it dies, every connection is cut, that is reported, and a new process
// gets the same policy before it gets any stream: until then nothing is allowed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "egress/provenance.h"
#include "egress/question.h"
#include "egress/upstream.h"
#include "events/event.h"
#include "policy/egress_policy.h"

namespace anchorhold::egress {

// What is allowed, in one piece: it is replaced as a whole.
struct DoorPolicy {
  policy::EgressPolicy rules;
  policy::Person person = policy::Person::absent;  // absent: nothing is asked, what would be asked is denied
  std::chrono::milliseconds ask_timeout = std::chrono::seconds(60);  // no answer in time: denied
  // Where the secret of each credential stands that a rule names; the secret itself is asked for. A rule
  // whose credential is not here denies.
  std::map<std::string, CredentialForm> credentials;
};

struct DoorSpec {
  DoorPolicy policy;
  std::string session_token;  // at least 16 characters; what the guest holds in place of every secret
  ResolverSpec resolver;
  UpstreamProxies proxies;
  TrustSpec trust;
  ConnectionLimits limits;
  std::filesystem::path program;  // anchorhold-egressd; empty: own_program()
  bool allow_weak = false;        // see SealPolicy::allow_weak
};

// Whom the door turns to. Everything is called on the door's own thread, which serves the guest: callbacks
// must not block for long and must not call back into the door before they return, except through the
// functions they were given.
struct DoorHost {
  // Records what was decided; a decision that cannot be recorded is not acted upon. Must outlive the door.
  events::EventSink* sink = nullptr;
  // Puts a question to the person; the answer may come from any thread, at once or later. Without it nobody
  // is there. `session`, `always` and `never` become rules for the rest of the session (rules.answers),
  // unless the policy in force says the same already; whoever answered `always` or `never` keeps the rule for
  // later sessions.
  std::function<void(const Question&, std::function<void(Answer)> answer)> ask;
  // The question needs no answer any more (time is up, the guest gave up, the process is gone).
  std::function<void(std::uint64_t question)> withdrawn;
  // One secret for one request; from any thread, at once or later. The string is wiped after it was passed
  // on.
  std::function<void(const SecretRequest&, std::function<void(Result<std::string>)> give)> secret;
  // The process is new, and with it the session's CA: the guest needs this one in its trust stores.
  std::function<void(const std::string& ca_certificate_pem)> restarted;
};

// The rule that an answer becomes. `asking`: the rule that wanted the question, or none; what it demands of
// connections a yes does not take away.
policy::EgressRule rule_of_answer(const policy::Destination& destination, Answer answer,
                                  const policy::EgressRule* asking);

struct DoorStatistics {
  std::uint64_t adopted = 0;   // streams given to the process
  std::uint64_t dropped = 0;   // streams closed because no process could take them
  std::uint64_t restarts = 0;  // times the process was started again
};

// Safe from any thread. Destroying it ends the process and cuts every connection.
class Door {
 public:
  // Returns when the process is sealed and holds the policy.
  static Result<std::unique_ptr<Door>> start(DoorSpec spec, DoorHost host);
  virtual ~Door() = default;

  // One connection of the guest: a stream socket on which the guest speaks HTTP to its proxy.
  virtual Status adopt(UniqueFd stream) = 0;
  // Takes effect on open connections: what the new policy does not allow is cut, with an event. Answers given
  // for the session stay. On an error (a policy too large to pass) everything is denied.
  virtual Status replace_policy(DoorPolicy policy) = 0;
  // Whom new connections to servers trust. On an error (a file that cannot be read) nothing changes.
  virtual Status replace_trust(const TrustSpec& trust) = 0;
  // The host's network changed (VPN, another resolver); holds for new connections.
  virtual Status replace_upstream(ResolverSpec resolver, UpstreamProxies proxies) = 0;
  // What is in force now, with the session's answers.
  virtual DoorPolicy policy() const = 0;

  // Of the process that runs now.
  virtual std::string ca_certificate_pem() const = 0;
  virtual pid_t pid() const = 0;  // -1 while there is none
  virtual DoorStatistics statistics() const = 0;
};

}  // namespace anchorhold::egress
