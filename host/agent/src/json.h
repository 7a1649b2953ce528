// JSON from outside: parsed with limits on size and depth, read with defaults instead of exceptions, written
// so that bytes that are not UTF-8 become U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold::agent {

using Json = nlohmann::json;

inline constexpr std::size_t max_json_bytes = 32u << 20;
inline constexpr std::size_t max_json_depth = 64;

// invalid_argument: not JSON, too deep or too large.
Result<Json> parse_json(std::string_view text, std::size_t max_bytes = max_json_bytes,
                        std::size_t max_depth = max_json_depth);
std::string to_text(const Json& json);

// The member when it is there and of that type, else the default.
std::string string_or(const Json& object, const char* key, std::string_view otherwise = {});
std::uint64_t uint_or(const Json& object, const char* key, std::uint64_t otherwise = 0);
bool bool_or(const Json& object, const char* key, bool otherwise = false);
// The member when it is there, else null.
const Json& member(const Json& object, const char* key);

}  // namespace anchorhold::agent
