// Letters without regard to their case, as HTTP compares them (RFC 9110 5.1): ASCII only, whatever the locale
// is.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace anchorhold::egress {

inline std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

}  // namespace anchorhold::egress
