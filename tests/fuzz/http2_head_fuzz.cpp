// Fields of HTTP/2 as a guest or a server sends them, a line each: they are one head or refused, and a head
// that goes on is one that means the same.
#include <cstdint>
#include <cstdlib>

#include "egress/http2_head.h"

using namespace anchorhold::egress;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<Field> fields;
  while (!rest.empty() && fields.size() < max_fields) {
    auto end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    auto colon = line.find(':', 1);
    fields.push_back({std::string(line.substr(0, colon)),
                      colon == std::string_view::npos ? std::string() : std::string(line.substr(colon + 1))});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  (void)response_of_http2(fields);
  auto head = request_head_of_http2(fields, false);
  if (!head || head->form == RequestHead::Form::connect) return 0;
  auto again = request_head_of_http2(http2_fields_of(*head, false), false);
  if (!again || again->destination != head->destination || again->path != head->path ||
      again->method != head->method)
    std::abort();
  return 0;
}
