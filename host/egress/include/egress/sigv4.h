// AWS Signature Version 4: what a guest signed with its session's token is signed again with the person's
// credential. The host derives a key that signs for one day, region and service, and the egress process gets
// that, never the secret access key. Pure. Source: AWS, "Create a signed AWS API request" and "Authenticating
// Requests (AWS Signature Version 4)" of the S3 API reference.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/secret.h"
#include "egress/http_head.h"

namespace anchorhold::egress {

struct SigV4Scope {
  std::string date;     // "20150830"
  std::string region;   // "us-east-1"
  std::string service;  // "s3"

  std::string text() const;  // "20150830/us-east-1/s3/aws4_request"
  static Result<SigV4Scope> parse(std::string_view text);
  bool operator==(const SigV4Scope&) const = default;
};

// The value of an Authorization field.
struct SigV4Authorization {
  std::string access_key_id;
  SigV4Scope scope;
  std::vector<std::string> signed_headers;  // lower case
  std::string signature;
};
// Nothing when the scheme is another; invalid_argument when it is this one and not well formed.
Result<std::optional<SigV4Authorization>> parse_sigv4(std::string_view value);

// What signs for one scope. Wiped at its end; in ordinary memory, as the sealed process may make no other.
struct SigV4Key {
  std::string access_key_id;
  std::string session_token;  // of temporary credentials; empty: none
  std::string signing_key;    // 32 bytes
  ~SigV4Key() {
    wipe(session_token);
    wipe(signing_key);
  }
};
// On the host.
Secret sigv4_signing_key(std::string_view secret_access_key, const SigV4Scope& scope);
// As one text that takes the place of a secret on its way to the process.
std::string encode_sigv4_key(const SigV4Key& key);
Result<SigV4Key> parse_sigv4_key(std::string_view text);

// What stands for the body in the signature.
struct SigV4Payload {
  enum class Kind {
    given,   // the request says it, in x-amz-content-sha256
    hashed,  // the SHA-256 of the body must be found out first
  };
  Kind kind = Kind::given;
  std::string text;  // given
};
// permission_denied with the reason for a body that is signed piece by piece, which cannot be done again
// without holding each piece.
Result<SigV4Payload> sigv4_payload(const RequestHead& head);
inline constexpr std::uint64_t max_hashed_body = 8u << 20;

// "20150830T123600Z", UTC.
std::string sigv4_time(std::chrono::system_clock::time_point time);

// Signs for what is sent: sets Authorization, X-Amz-Date and X-Amz-Security-Token, of which there is one each
// after. `also` are the headers that the guest signed besides those that must be. The head is that of a
// request as it goes on; `field` holds the guest's Authorization.
void sign_sigv4(RequestHead& head, std::size_t field, const SigV4Key& key, const SigV4Scope& scope,
                std::string_view time, std::string_view payload, const std::vector<std::string>& also,
                std::uint16_t scheme_port);

// The parts that are signed, for those who look for a difference.
std::string sigv4_canonical_request(const RequestHead& head, const std::vector<std::string>& signed_headers,
                                    std::string_view service, std::string_view payload,
                                    std::uint16_t scheme_port);

}  // namespace anchorhold::egress
