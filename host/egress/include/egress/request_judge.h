// Whether one request inside an opened connection may go on: it must say the destination that was connected,
// satisfy the rule, and carry nobody else's credential. The same function judges HTTP/1 and HTTP/2. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "egress/git.h"
#include "egress/http_head.h"
#include "egress/provenance.h"
#include "policy/egress_policy.h"

namespace anchorhold::egress {

struct RequestContext {
  const policy::Destination& destination;  // that was decided, resolved and dialled
  const policy::EgressRule* rule;          // that allowed it; none: a person did, for this time
  const std::map<std::string, CredentialForm>& credentials;
  std::string_view session_token;
  bool tls;
};

struct RequestJudgement {
  enum class Verdict {
    pass,
    swap,    // after the secret took the place of the token in `field`, in `form`
    refuse,  // see reason
  };
  Verdict verdict = Verdict::pass;
  std::string reason;
  unsigned status = 403;                 // of the refusal
  bool violation = false;                // a boundary: no well-behaved client sends this
  bool foreign_credential = false;       // it is about whose credential it is
  std::size_t field = 0;                 // swap: index into the head's fields
  const CredentialForm* form = nullptr;  // swap; points into the context's credentials
  bool challenge = false;                // refused, until the client authenticates as HTTP's Basic has it
  std::optional<GitRequest> git;         // under a rule of Git; the commands of a push are still to be judged
};

RequestJudgement judge_inner_request(const RequestHead& head, const RequestContext& context);

// The fields at the end of a chunked body or an HTTP/2 stream. Nothing that frames, routes or authenticates a
// message belongs there (RFC 9110 6.5.1); permission_denied with the reason.
Status judge_trailers(const std::vector<Field>& trailers, std::string_view session_token);

}  // namespace anchorhold::egress
