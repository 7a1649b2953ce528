// Any bytes give a manifest that survives being written and read again, or an error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "images/manifest.h"
#include "images/signature.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::images;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)check_signature("manifest", text, {{std::string(32, 'k'), "0123456789abcdef"}});
  auto manifest = parse_manifest(text);
  if (!manifest) return 0;
  auto again = parse_manifest(serialize(*manifest));
  if (!again || *again != *manifest) std::abort();
  return 0;
}
