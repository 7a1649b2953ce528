// Reading one page of the web for a session, on the host, by the same decision as its guest: the request goes
// through the session's door as a guest's would, and so does each redirect. What a server sends is read in a
// sealed process, anchorhold-fetch, one for each page: TLS, HTTP, and what of the page is text for a reader.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::egress {

struct FetchRequest {
  std::string url;                      // http:// or https://
  std::uint64_t most_bytes = 5u << 20;  // of the body, decompressed
  std::size_t most_text = 256 * 1024;   // of what is read out of it; the rest is left out
  std::chrono::milliseconds limit = std::chrono::seconds(90);  // with its redirects and a person's answer
};

struct FetchedPage {
  std::string url;  // of the last redirect
  unsigned status = 0;
  std::string type;  // "text/html"
  std::string title;
  std::string text;  // UTF-8
  bool shortened = false;
};

struct FetchRoute {
  std::function<Status(UniqueFd)> adopt;  // gives a stream to the door
  std::string trust_pem;                  // servers' authorities, and the door's own
  std::filesystem::path program;          // anchorhold-fetch; empty: own_program()
  bool allow_weak = false;                // see SealPolicy::allow_weak
};

inline constexpr int max_redirects = 5;

// permission_denied: refused on the way, with the reason. invalid_argument: no address of a page, or nothing
// that can be read as text. resource_exhausted: too large. unavailable, deadline_exceeded, cancelled.
Result<FetchedPage> fetch_page(const FetchRequest& request, const FetchRoute& route, std::stop_token stop);

}  // namespace anchorhold::egress
