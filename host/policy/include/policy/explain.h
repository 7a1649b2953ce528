// What the rules say about a destination, in words for a person. The decision is decide()'s and
// judge_request()'s own. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/egress_policy.h"

namespace anchorhold::policy {

struct ExplainQuery {
  std::string target;  // as a person or a guest writes it; without a port, 443
  std::string method;  // empty: not said
  std::string path;    // the same
};

// What becomes of the bytes of an allowed connection.
enum class Passage { tunnelled, opened, never_opened };
std::string_view to_string(Passage passage);

struct Explanation {
  std::optional<Destination> destination;  // none: it is not exactly one, and refused with this reason
  EgressDecision decision;                 // with a person present; its rule points into the policy
  EgressDecision alone;                    // with nobody there
  // The rest is empty when it is denied.
  std::optional<Passage> passage;
  std::optional<Status> request;  // what the rule says to the method and the path, when they were said

  // Allowed, asked about or denied, the request included.
  EgressAction verdict() const;
};

Explanation explain(const EgressPolicy& policy, const ExplainQuery& query);
// Sentences, one a line.
std::vector<std::string> in_words(const Explanation& explanation, const ExplainQuery& query);
// "GET, HEAD on /v1/*, with the credential example": what a rule demands of each request; empty: nothing.
std::string demands_of(const EgressRule& rule);

}  // namespace anchorhold::policy
