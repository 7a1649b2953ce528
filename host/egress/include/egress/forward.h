// Heads as they go on: what concerns only the connection to the proxy is left out (RFC 9110 7.6.1), the
// framing is written anew from what was understood, and nothing else is changed. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/http_head.h"

namespace anchorhold::egress {

struct ForwardedRequest {
  std::uint16_t scheme_port = 80;   // Host does not name it
  bool absolute = false;            // to a proxy of the host
  std::string proxy_authorization;  // for it; empty: none
  bool websocket = false;           // the upgrade goes on
  bool plain_coding = false;        // the response must not be compressed
};
std::string forward_request(const RequestHead& head, const ForwardedRequest& how);

struct ForwardedResponse {
  bool keep_alive = true;  // the guest's connection
  bool websocket = false;  // 101
  bool to_http_1_0 = false;
};
std::string forward_response(const ResponseHead& head, const ForwardedResponse& how);

// Lower-case names of the fields that end at a proxy, those that Connection names included.
bool ends_here(std::string_view lower_name, const std::vector<Field>& fields);

}  // namespace anchorhold::egress
