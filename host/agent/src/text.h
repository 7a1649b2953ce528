// Text for a model from bytes that may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace anchorhold::agent {

// Invalid UTF-8 becomes U+FFFD (one for each maximal ill-formed part, Unicode 15 section 3.9) and NUL too.
// Counts them.
std::string clean_utf8(std::string_view bytes, std::size_t* replaced = nullptr);

// The longest prefix of at most max_bytes, or suffix, that does not cut a UTF-8 sequence.
std::string_view prefix_at_boundary(std::string_view text, std::size_t max_bytes);
std::string_view suffix_at_boundary(std::string_view text, std::size_t max_bytes);

// One line for a person: the first line, control characters as spaces, at most max_bytes, "…" when cut.
std::string one_line(std::string_view text, std::size_t max_bytes = 120);

// "1 line", "3 lines"; "1,234,567".
std::string counted(std::uint64_t n, std::string_view singular, std::string_view plural);
std::string grouped(std::uint64_t n);

// Whether the beginning of a file looks like something no text tool should show.
bool looks_binary(std::string_view beginning);

}  // namespace anchorhold::agent
