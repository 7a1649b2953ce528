#include "schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

namespace anchorhold::agent {
namespace {

std::optional<std::string> check(const Json& schema, const Json& value, const std::string& name);

bool has_type(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return true;
}

std::string shown(const std::string& name) {
  return name.empty() ? "the arguments" : fmt::format("\"{}\"", name);
}

std::optional<std::string> check_object(const Json& schema, const Json& value, const std::string& name) {
  const Json& properties = member(schema, "properties");
  for (const Json& required : member(schema, "required")) {
    auto key = required.get<std::string>();
    if (member(value, key.c_str()).is_null())
      return fmt::format("the argument \"{}\" is missing", name.empty() ? key : name + "." + key);
  }
  for (const auto& [key, item] : value.items()) {
    auto known = properties.find(key);
    if (known == properties.end()) {
      if (bool_or(schema, "additionalProperties", true)) continue;
      std::vector<std::string> names;
      for (const auto& property : properties.items()) names.push_back(property.key());
      return fmt::format("there is no argument \"{}\"; there are: {}", key.substr(0, 80),
                         fmt::join(names, ", "));
    }
    // A null stands for "left out" with many models.
    if (item.is_null()) continue;
    if (auto wrong = check(*known, item, name.empty() ? key : name + "." + key)) return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> check_array(const Json& schema, const Json& value, const std::string& name) {
  if (value.size() < uint_or(schema, "minItems"))
    return fmt::format("{} needs at least {} items", shown(name), uint_or(schema, "minItems"));
  if (auto most = uint_or(schema, "maxItems", SIZE_MAX); value.size() > most)
    return fmt::format("{} takes at most {} items", shown(name), most);
  const Json& items = member(schema, "items");
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (auto wrong = check(items, value[i], fmt::format("{}[{}]", name, i))) return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> check_scalar(const Json& schema, const Json& value, const std::string& name) {
  if (const Json& choices = member(schema, "enum"); choices.is_array()) {
    for (const Json& choice : choices) {
      if (choice == value) return std::nullopt;
    }
    return fmt::format("{} must be one of {}", shown(name), to_text(choices));
  }
  if (value.is_number()) {
    double number = value.get<double>();
    if (const Json& least = member(schema, "minimum"); least.is_number() && number < least.get<double>())
      return fmt::format("{} must be at least {}", shown(name), to_text(least));
    if (const Json& most = member(schema, "maximum"); most.is_number() && number > most.get<double>())
      return fmt::format("{} must be at most {}", shown(name), to_text(most));
  }
  if (value.is_string()) {
    std::size_t size = value.get_ref<const std::string&>().size();
    if (size < uint_or(schema, "minLength")) return fmt::format("{} must not be empty", shown(name));
    if (auto most = uint_or(schema, "maxLength", SIZE_MAX); size > most)
      return fmt::format("{} is {} bytes long, at most {} are allowed", shown(name), size, most);
  }
  return std::nullopt;
}

std::optional<std::string> check(const Json& schema, const Json& value, const std::string& name) {
  std::string type = string_or(schema, "type");
  if (!has_type(value, type))
    return fmt::format("{} must be of type {}, it is {}", shown(name), type, value.type_name());
  if (value.is_object()) return check_object(schema, value, name);
  if (value.is_array()) return check_array(schema, value, name);
  return check_scalar(schema, value, name);
}

}  // namespace

std::optional<std::string> mismatch(const Json& schema, const Json& value) {
  return check(schema, value, "");
}

}  // namespace anchorhold::agent
