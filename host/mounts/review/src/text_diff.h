// A unified diff of two texts, as patch(1) reads it. Bounded in time, memory and size.
#pragma once

#include <string>
#include <string_view>

namespace anchorhold::mounts {

inline constexpr std::size_t max_diff_input_bytes = 1 << 20;  // of each side
inline constexpr std::size_t max_diff_bytes = 64 * 1024;

// No NUL and hardly any control characters in its beginning.
bool looks_like_text(std::string_view beginning);

// Without a header; empty when they are equal. Texts that differ too much are shown as replaced; a diff that
// is too long ends with a line that says so.
std::string unified_diff(std::string_view before, std::string_view now);

}  // namespace anchorhold::mounts
