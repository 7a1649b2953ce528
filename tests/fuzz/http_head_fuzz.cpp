// Heads of HTTP/1 messages, as a guest or a server might send them: refused, incomplete, or within their own
// bytes.
#include <cstdint>
#include <cstdlib>

#include "egress/http_head.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::egress;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (auto request = parse_request_head(bytes, 80); request && *request && (*request)->size > size)
    std::abort();
  if (auto response = parse_response_head(bytes, "GET"); response && *response && (*response)->size > size)
    std::abort();
  return 0;
}
