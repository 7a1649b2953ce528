#include "agent/message.h"

#include <set>

#include "base/id.h"
#include "message_json.h"

namespace anchorhold::agent {
namespace {

// How arguments that are not JSON are put into a JSON field, as the Messages API's documentation of
// fine-grained tool streaming proposes.
constexpr const char* invalid_json_key = "INVALID_JSON";

// A stored message is deeper and larger than each of the texts it was made of.
constexpr std::size_t max_message_bytes = std::size_t{1} << 30;
constexpr std::size_t max_message_depth = max_json_depth * 2;

template <typename... Ts>
struct Visitor : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Visitor(Ts...) -> Visitor<Ts...>;

std::string result_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (content.is_array()) {
    for (const Json& part : content) {
      if (string_or(part, "type") == "text") text += string_or(part, "text");
    }
  }
  return text;
}

}  // namespace

Usage& Usage::operator+=(const Usage& other) {
  input_tokens += other.input_tokens;
  output_tokens += other.output_tokens;
  cache_read_tokens += other.cache_read_tokens;
  cache_write_tokens += other.cache_write_tokens;
  return *this;
}

void set_input(ToolUseBlock& block, std::string_view arguments) {
  block.malformed = false;
  if (arguments.find_first_not_of(" \t\r\n") == arguments.npos) {
    block.input = "{}";
    return;
  }
  block.input = arguments;
  auto parsed = parse_json(arguments);
  // Some servers encode twice: a JSON string that holds the object.
  if (parsed && parsed->is_string()) {
    block.input = parsed->get<std::string>();
    parsed = parse_json(block.input);
  }
  block.malformed = !parsed || !parsed->is_object();
}

void settle(std::vector<Block>& blocks) {
  std::erase_if(blocks, [](const Block& block) { return std::holds_alternative<ToolResultBlock>(block); });
  std::set<std::string> ids;
  for (Block& block : blocks) {
    auto* use = std::get_if<ToolUseBlock>(&block);
    if (!use) continue;
    if (use->name.empty()) use->name = "unnamed";
    if (use->id.empty() || !ids.insert(use->id).second) {
      use->id = "call_" + random_hex(12);
      ids.insert(use->id);
    }
  }
}

Json block_to_json(const Block& block) {
  return std::visit(
      Visitor{
          [](const TextBlock& text) -> Json {
            if (!text.carried.empty()) {
              if (auto json = parse_json(text.carried)) return std::move(*json);
            }
            return {{"type", "text"}, {"text", text.text}};
          },
          [](const ToolUseBlock& use) -> Json {
            Json input = Json::object();
            if (use.malformed) {
              input[invalid_json_key] = use.input;
            } else if (auto parsed = parse_json(use.input); parsed && parsed->is_object()) {
              input = std::move(*parsed);
            }
            return {{"type", "tool_use"}, {"id", use.id}, {"name", use.name}, {"input", std::move(input)}};
          },
          [](const ToolResultBlock& result) -> Json {
            Json json = {
                {"type", "tool_result"}, {"tool_use_id", result.tool_use_id}, {"content", result.text}};
            if (result.is_error) json["is_error"] = true;
            return json;
          },
          [](const OpaqueBlock& opaque) -> Json {
            if (auto json = parse_json(opaque.json)) return std::move(*json);
            return {{"type", opaque.type}};
          }},
      block);
}

std::optional<Block> block_from_json(const Json& json) {
  std::string type = string_or(json, "type");
  if (type.empty()) return std::nullopt;
  if (type == "text") {
    TextBlock block{string_or(json, "text"), {}};
    const Json& citations = member(json, "citations");
    bool plain = json.size() == 2 || (json.size() == 3 && json.contains("citations") && citations.empty());
    if (!plain) block.carried = to_text(json);
    return block;
  }
  if (type == "tool_use") {
    ToolUseBlock block{string_or(json, "id"), string_or(json, "name"), {}, false};
    if (block.name.empty()) return std::nullopt;
    const Json& input = member(json, "input");
    if (input.is_object() && input.size() == 1 && member(input, invalid_json_key).is_string()) {
      block.input = input[invalid_json_key].get<std::string>();
      block.malformed = true;
    } else {
      set_input(block, input.is_null() ? "" : to_text(input));
    }
    return block;
  }
  if (type == "tool_result")
    return ToolResultBlock{string_or(json, "tool_use_id"), result_text(member(json, "content")),
                           bool_or(json, "is_error")};
  return OpaqueBlock{std::move(type), to_text(json)};
}

std::string blocks_to_json(const std::vector<Block>& blocks) {
  Json array = Json::array();
  for (const Block& block : blocks) array.push_back(block_to_json(block));
  return to_text(array);
}

Result<std::vector<Block>> blocks_from_json(std::string_view json) {
  Json array = ANCHORHOLD_TRY(parse_json(json, max_message_bytes, max_message_depth));
  if (!array.is_array()) return fail(ErrorCode::invalid_argument, "the content of a message is not an array");
  std::vector<Block> blocks;
  for (const Json& item : array) {
    auto block = block_from_json(item);
    if (!block) return fail(ErrorCode::invalid_argument, "a block of a message has no type or no name");
    blocks.push_back(std::move(*block));
  }
  return blocks;
}

std::string text_of(const std::vector<Block>& blocks) {
  std::string text;
  for (const Block& block : blocks) {
    if (const auto* part = std::get_if<TextBlock>(&block)) text += part->text;
  }
  return text;
}

}  // namespace anchorhold::agent
