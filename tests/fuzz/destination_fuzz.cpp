// Whatever a guest calls a host: it is refused, or it has one canonical form that parses to itself.
#include <cstdint>
#include <cstdlib>

#include "policy/destination.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::policy;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto host = Host::parse(text)) {
    auto again = Host::parse(host->text());
    if (!again || *again != *host) std::abort();
  }
  if (auto destination = Destination::parse(text, 443)) {
    auto again = Destination::parse(destination->text(), {});
    if (!again || *again != *destination) std::abort();
  }
  if (auto pattern = HostPattern::parse(text)) {
    auto again = HostPattern::parse(pattern->text());
    if (!again || *again != *pattern) std::abort();
  }
  return 0;
}
