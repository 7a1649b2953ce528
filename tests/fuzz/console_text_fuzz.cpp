// Whatever a guest or a model says: what a person is shown is UTF-8, keeps to its length, and steers no
// terminal.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "console.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::cli;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string shown = printable(text);
  for (unsigned char byte : shown)
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) std::abort();
  if (shown.find("\xc2\x9b") != std::string::npos || shown.find("\xe2\x80\xae") != std::string::npos)
    std::abort();
  // Throws when the text is not UTF-8.
  (void)nlohmann::json(shown).dump();
  if (printable(shown) != shown) std::abort();
  for (std::size_t limit : {4u, 10u, 100u}) {
    const std::string line = one_line(text, limit);
    if (line.size() > limit || line.find('\n') != std::string::npos) std::abort();
    (void)nlohmann::json(line).dump();
  }
  return 0;
}
