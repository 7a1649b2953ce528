#include "json.h"

#include <fmt/format.h>

namespace anchorhold::agent {
namespace {

// The parser itself does not recurse, but what reads and writes the value does.
bool deeper_than(std::string_view text, std::size_t limit) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limit) return true;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::size_t max_bytes, std::size_t max_depth) {
  if (text.size() > max_bytes)
    return fail(ErrorCode::invalid_argument,
                fmt::format("JSON of {} bytes is larger than the {} allowed", text.size(), max_bytes));
  if (deeper_than(text, max_depth))
    return fail(ErrorCode::invalid_argument, fmt::format("JSON is nested deeper than {} levels", max_depth));
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    std::string_view what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    if (auto end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    return fail(ErrorCode::invalid_argument, std::string(what.substr(0, 300)));
  }
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json& member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::string string_or(const Json& object, const char* key, std::string_view otherwise) {
  const Json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string(otherwise);
}

std::uint64_t uint_or(const Json& object, const char* key, std::uint64_t otherwise) {
  const Json& value = member(object, key);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_number_integer()) {
    auto number = value.get<std::int64_t>();
    return number < 0 ? otherwise : static_cast<std::uint64_t>(number);
  }
  return otherwise;
}

bool bool_or(const Json& object, const char* key, bool otherwise) {
  const Json& value = member(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

}  // namespace anchorhold::agent
