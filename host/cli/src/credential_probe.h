// One request with a credential, made by this process: whether the other side takes it.
#pragma once

#include <string>

#include "base/error.h"
#include "base/secret.h"
#include "vault/credential.h"

namespace anchorhold::cli {

struct ProbeTarget {
  std::string url;     // https
  std::string host;    // as in the URL, with a port that is not 443
  std::string path;    // with the query
  std::string method;  // GET or HEAD
};
// Of a URL as a person writes it. invalid_argument for everything but https without a user.
Result<ProbeTarget> probe_target(const std::string& url);

// The HTTP status. Redirects are not followed; what comes is not kept. `trust_pem` are all the certificates
// that are believed.
Result<int> probe(const ProbeTarget& target, const vault::Credential& credential, const Secret& secret,
                  const std::string& trust_pem);

}  // namespace anchorhold::cli
