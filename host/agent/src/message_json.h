// One block as JSON in the Messages API's form, and back.
#pragma once

#include <optional>

#include "agent/message.h"
#include "json.h"

namespace anchorhold::agent {

Json block_to_json(const Block& block);
// Nothing for what is no block (not an object, no type, a tool call without a name).
std::optional<Block> block_from_json(const Json& json);
// Sets input and malformed from the arguments as they arrived; empty arguments are an empty object.
void set_input(ToolUseBlock& block, std::string_view arguments);

// What a model's message must hold before it is stored: every tool call has a name and an id of its own, so
// that its result can be told from others, and no block claims to be a result, which only our side gives.
void settle(std::vector<Block>& blocks);

}  // namespace anchorhold::agent
