// A guest's first bytes of TLS: whatever they are, they are one hello, none yet, or refused; and whatever was
// understood does not depend on how the bytes come.
#include <cstdint>
#include <cstdlib>

#include "egress/client_hello.h"

using namespace anchorhold::egress;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto whole = parse_client_hello(bytes);
  if (!whole || !*whole) return 0;
  if ((*whole)->server_name && !(*whole)->server_name->is_name()) std::abort();
  // A proxy that reads byte by byte comes to the same: until it is whole there is none, and never an error.
  for (std::size_t part = 0; part < size && part < 600; ++part) {
    auto before = parse_client_hello(bytes.substr(0, part));
    if (!before) std::abort();
    if (*before && (*before)->server_name != (*whole)->server_name) std::abort();
  }
  return 0;
}
