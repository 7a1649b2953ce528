// Text as HTTP takes it: ASCII only, whatever the locale is.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace anchorhold::egress {

// Letters without regard to their case, as HTTP compares them (RFC 9110 5.1).
inline std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

// Without what is blank at both ends; by default HTTP's optional white space (RFC 9110 5.6.3).
inline std::string_view trimmed(std::string_view text, std::string_view blank = " \t") {
  auto begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

}  // namespace anchorhold::egress
