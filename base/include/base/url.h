// Addresses of the web. They are taken apart by libcurl, which is also what goes there, so that nothing is
// judged by another reading than the one that counts. In a library of its own, anchorhold_url.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace anchorhold {

struct Url {
  std::string scheme;  // "http" or "https"
  std::string host;    // IPv6 in brackets
  std::uint16_t port = 0;
  std::string path;   // begins with '/'; without dot segments
  std::string query;  // without '?'

  // The host, with its port when that is not the scheme's own.
  std::string authority() const;
  // What a request for it asks for: path and query.
  std::string target() const;
  std::string text() const;
};

// invalid_argument, with the address: what is none, what is neither http nor https, and what holds a name or
// a password. A fragment is dropped. `base`: what a relative one is read against.
Result<Url> parse_url(const std::string& text, const std::string& base = {});

}  // namespace anchorhold
