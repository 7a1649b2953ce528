// Heads of HTTP/2 as the same values that HTTP/1 heads become, so that both are judged by the same functions.
// nghttp2 checks the framing and the order of fields; everything here is about which request it is. Source:
// RFC 9113 8.
#pragma once

#include <vector>

#include "base/error.h"
#include "egress/http_head.h"

namespace anchorhold::egress {

// `fields` as they came, pseudo-header fields first. `ends`: no body follows. invalid_argument for everything
// that does not name exactly one https:// resource; a CONNECT is given back as one, to be refused with its
// reason.
Result<RequestHead> request_head_of_http2(std::vector<Field> fields, bool ends);

// The fields of the request as it goes on, pseudo-header fields first; the caller's head may hold a secret.
std::vector<Field> http2_fields_of(const RequestHead& head, bool plain_coding);

struct Http2Response {
  unsigned status = 0;
  std::vector<Field> fields;  // without pseudo-header fields
};
Result<Http2Response> response_of_http2(std::vector<Field> fields);

}  // namespace anchorhold::egress
