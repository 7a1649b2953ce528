// A name of any bytes: folding it twice changes nothing more, and what hides its folded form hides it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "mounts/hidden.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::mounts;
  std::string_view name(reinterpret_cast<const char*>(data), size);
  std::string folded = fold_name(name);
  if (HiddenNames::standard().hides(name) && !HiddenNames::standard().hides(folded)) std::abort();
  auto pattern = HiddenNames::create({std::string(name)});
  if (pattern && name.find('!') == std::string_view::npos && !pattern->hides(folded)) std::abort();
  return 0;
}
