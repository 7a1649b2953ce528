// One HTTP POST whose answer arrives in pieces. TLS is verified, redirects are not followed (the key would
// follow them), loopback is never sent through a proxy. A stop request ends it at once.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/secret.h"
#include "base/url.h"

namespace anchorhold::agent {

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::string key_header;            // the header's beginning, up to where the key goes: "x-api-key: "
  const Secret* key = nullptr;       // null or empty: the header is left out
  std::string body;
  std::chrono::milliseconds connect_limit = std::chrono::seconds(30);
  std::chrono::milliseconds idle_limit = std::chrono::minutes(10);  // without a single byte
};

struct HttpHead {
  long status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
};

// Gets the answer's head with every piece of the body. An error ends the transfer with that error.
using HttpSink = std::function<Status(const HttpHead& head, std::string_view piece)>;

// The head, when the whole answer arrived. unavailable: no connection, or it broke. deadline_exceeded:
// nothing came. failed_precondition: the server's certificate is not good. cancelled: stopped.
Result<HttpHead> http_post(const HttpRequest& request, const HttpSink& sink, std::stop_token stop);

// Where a model is served: no query, and the path without a '/' at its end; it may be empty.
Result<Url> model_address(const std::string& url);
bool is_loopback(const std::string& host);

}  // namespace anchorhold::agent
