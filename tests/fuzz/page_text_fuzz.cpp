// Pages of HTML: whatever comes, no more text than was allowed, and a title of a bounded length.
#include <cstdint>
#include <cstdlib>

#include "page_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr const char* charsets[] = {"", "utf-8", "iso-8859-1", "utf-16", "nonsense"};
  constexpr std::size_t most = 2000;
  anchorhold::egress::PageText page(charsets[data[0] % 5], "https://www.example.com/a/", most);
  page.add({reinterpret_cast<const char*>(data) + 1, size - 1});
  page.finish();
  if (page.text().size() > most || page.title().size() > 300) std::abort();
  return 0;
}
