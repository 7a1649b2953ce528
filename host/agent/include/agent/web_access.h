// The agent's only way to pages of the web: through the session's way out, decided as for the guest. The
// session implements it; tests over a fake. Called from the thread that runs the task.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string>
#include <vector>

#include "base/error.h"

namespace anchorhold::agent {

struct WebPage {
  std::string url;      // where the page was in the end
  unsigned status = 0;  // of HTTP
  std::string type;     // "text/html"
  std::string title;
  std::string text;  // what a reader sees of it
  bool shortened = false;
};

// What the workspace and fetch_url may reach just now.
struct NetworkReach {
  std::vector<std::string> hosts;  // "*.example.org:443", "example.com:443 (method GET)"
  std::size_t more = 0;            // hosts that are not listed
  bool asks = false;               // about any other a person is asked
};

class WebAccess {
 public:
  virtual ~WebAccess() = default;

  virtual NetworkReach reach() const = 0;

  // permission_denied: refused, with the reason. invalid_argument: no address of a page, or no text.
  // resource_exhausted: too large. failed_precondition: there is no network, or the server is not who it
  // says.
  virtual Result<WebPage> fetch(const std::string& url, std::stop_token stop) = 0;
};

}  // namespace anchorhold::agent
