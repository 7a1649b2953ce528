// Fields of the JSON messages between the host and the sealed processes of this room: taken as they must be
// or not at all, since who sent them may have been taken over.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

namespace anchorhold::egress {

// Anything but one object is null. No callback, no exceptions; a depth that could hurt does not fit into a
// message.
inline nlohmann::json parse_object(std::string_view text) {
  auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  return json.is_object() ? json : nlohmann::json();
}

// Bytes that are no UTF-8 are replaced.
inline std::string dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A string, a boolean, or a whole number that is not negative and fits into T. Untouched and false when it is
// not there or something else.
template <typename T>
bool take(const nlohmann::json& json, const char* key, T& value) {
  auto found = json.find(key);
  if (found == json.end()) return false;
  if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) return false;
    value = found->template get_ref<const std::string&>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!found->is_boolean()) return false;
    value = found->template get<bool>();
  } else {
    if (!found->is_number_unsigned()) return false;
    auto number = found->template get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return false;
    value = static_cast<T>(number);
  }
  return true;
}

}  // namespace anchorhold::egress
