// Numbers of a JSON document that anybody may have written.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace anchorhold::images {

// 0 for what is no whole number from 0 upwards: converting a fraction or a huge number is undefined. Throws
// json::out_of_range, as at() does, when there is none.
inline std::uint64_t unsigned_at(const nlohmann::json& object, const char* key) {
  const auto& value = object.at(key);
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

}  // namespace anchorhold::images
