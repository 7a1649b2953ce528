// Whose credential a request carries. A guest holds one thing that looks like a credential: its session
// token, worth nothing anywhere else. On a destination with a credential, the token stands where the secret
// belongs and is replaced on the host; anything else that could authenticate the request is a key somebody
// planted, and refuses it. A session token on its way to any other destination is refused too. Pure: no
// vault, no network.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "egress/http_head.h"

namespace anchorhold::egress {

// Where the credential of a destination stands in a request.
struct CredentialForm {
  enum class Kind {
    bearer,     // Authorization: Bearer SECRET
    basic,      // Authorization: Basic base64(user:SECRET); the token may be the user name or the password
    header,     // header_name: SECRET
    aws_sigv4,  // Authorization: AWS4-HMAC-SHA256 Credential=TOKEN/…; the request is signed again (sigv4.h)
  };
  Kind kind = Kind::bearer;
  std::string header_name;  // header only, such as "x-api-key"
  std::string user;         // basic only: what is sent for the user name
};

struct Provenance {
  enum class Verdict {
    plain,    // nothing that authenticates, and none is needed
    swap,     // the token stands where the secret belongs
    refused,  // see reason; an event, since it is a boundary
  };
  Verdict verdict = Verdict::plain;
  std::string reason;     // for the person and the guest; never holds the foreign credential
  std::size_t field = 0;  // swap: index of the field to replace
  bool missing = false;   // refused, as there is no credential at all
};

// `form` is that of the rule's credential; none: the destination has no credential, and only the token is
// looked for.
Provenance judge_provenance(const RequestHead& head, const std::optional<CredentialForm>& form,
                            std::string_view session_token);

// The value of the field once the secret stands in it ("Bearer …", "Basic …", or the secret alone).
std::string field_with_secret(const CredentialForm& form, std::string_view secret);

// Whether the bytes hold the token as it is, percent-encoded, or in base64 at any of the three alignments.
// For bodies and paths; finds what was copied, not what was disguised on purpose.
bool holds_token(std::string_view bytes, std::string_view session_token);

}  // namespace anchorhold::egress
