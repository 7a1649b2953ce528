// Which destinations a session may reach: the rules, where each came from, and the one decision. Pure: no
// network, no files. The same function answers the proxy, the prompt, `egress explain` and the tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "policy/destination.h"
#include "policy/git_grant.h"

namespace anchorhold::policy {

enum class EgressAction { allow, deny, ask };
std::string_view to_string(EgressAction action);

struct EgressRule {
  HostPattern host;
  std::vector<std::uint16_t> ports = {443, 80};
  EgressAction action = EgressAction::deny;
  // Any of these makes the rule an inspecting one: its connections are opened by the proxy.
  std::vector<std::string> methods;  // upper case; empty: any
  std::vector<std::string> paths;    // "/v1/*": '*' stands for any characters, at the end only; empty: any
  std::string credential;            // name in the vault; empty: none
  std::vector<std::string> deny_headers;      // lower case
  std::vector<std::string> deny_json_fields;  // lower case: members of objects in a body
  std::vector<GitGrant> git;                  // not empty: Git over HTTPS and nothing else
  std::optional<ByteSize> max_upload;         // of one request's body
  bool tunnel_only = false;                   // never opened: pinned clients, mTLS
  std::string source;  // where a person finds it: "config.toml:12", "--allow", "answered 10:15"

  bool inspecting() const {
    return !methods.empty() || !paths.empty() || !credential.empty() || !deny_headers.empty() ||
           !deny_json_fields.empty() || !git.empty() || max_upload.has_value();
  }
  bool covers(const Destination& destination) const;
  bool names_address_of(const Address& address) const;
};

// In the order of the decision: what stands first wins, except that a deny anywhere beats every allow.
enum class RuleOrigin { managed_deny, managed_allow, user_deny, answer, session, kept_answer, user_allow };
std::string_view to_string(RuleOrigin origin);

struct EgressPolicy {
  std::vector<EgressRule> managed;  // by an administrator; sessions and people can only be stricter
  std::vector<EgressRule> user;     // the person's configuration
  std::vector<EgressRule> session;  // the command line's: the person's own rules, for this session
  // What a person answered to prompts of this session. Only these settle what an administrator wants to be
  // asked about.
  std::vector<EgressRule> answers;
  bool managed_floor = false;  // an administrator's list is complete: what it does not allow is denied
  // What happens to a destination that no rule covers. Without a person present, ask means deny.
  EgressAction unnamed = EgressAction::deny;
  // What a person answered for this and all later sessions. As strong as the command line, so that such an
  // answer settles what the person's own rules ask about.
  std::vector<EgressRule> kept{};
  // Why the person's rules are not known just now; while this says something, everything is denied.
  std::string broken{};
};

struct EgressDecision {
  EgressAction action = EgressAction::deny;
  std::optional<RuleOrigin> origin;  // none: no rule covers it
  const EgressRule* rule = nullptr;  // points into the policy
  std::string reason;                // one sentence for the person and for the guest
};

enum class Person { present, absent };
EgressDecision decide(const EgressPolicy& policy, const Destination& destination, Person person);

// Whether the resolved addresses of an allowed destination may be dialled: every one is judged, and one that
// is not allowed refuses them all (an answer that mixes a public and a private address is an attack). `own`
// are the addresses of the host's interfaces. An empty answer is refused. Ok, or permission_denied with the
// reason.
Status judge_addresses(const EgressDecision& decision, const Destination& destination,
                       std::span<const Address> answers, std::span<const Address> own);

// Whether one request satisfies an inspecting rule. The path is what stands in the request line, before '?'.
struct RequestFacts {
  std::string method;
  std::string path;
  std::vector<std::string> header_names;  // lower case
  std::optional<std::uint64_t>
      body_size;  // announced; unknown for chunked bodies, which are counted as they pass
};
Status judge_request(const EgressRule& rule, const RequestFacts& request);

}  // namespace anchorhold::policy
