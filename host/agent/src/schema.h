// Checks a tool's arguments against its schema. Knows the part of JSON Schema that our own tools use: type,
// properties, required, additionalProperties, items, enum, minimum, maximum, minLength, maxLength, minItems,
// maxItems.
#pragma once

#include <optional>
#include <string>

#include "json.h"

namespace anchorhold::agent {

// Nothing when the value fits; else one sentence for the model that names the argument and what it should be.
std::optional<std::string> mismatch(const Json& schema, const Json& value);

}  // namespace anchorhold::agent
