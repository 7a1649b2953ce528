// The configuration file, whatever is in it: read whole or refused with a reason.
#include <cstdint>
#include <cstdlib>

#include "policy/configuration.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto result =
      anchorhold::policy::parse_configuration({reinterpret_cast<const char*>(data), size}, "config.toml");
  if (!result && result.error().message.empty()) std::abort();
  return 0;
}
