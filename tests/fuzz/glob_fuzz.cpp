// A pattern and a path that a model made up, split at the first NUL.
#include <cstdint>
#include <string_view>

#include "glob.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto end = bytes.find('\0');
  auto glob = anchorhold::agent::Glob::parse(bytes.substr(0, end));
  if (glob) static_cast<void>(glob->matches(end == bytes.npos ? bytes : bytes.substr(end + 1)));
  return 0;
}
