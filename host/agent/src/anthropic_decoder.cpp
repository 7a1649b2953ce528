#include "anthropic_decoder.h"

#include <fmt/format.h>

#include "message_json.h"
#include "stop_reasons.h"
#include "text.h"

namespace anchorhold::agent {
namespace {

// Error types after which the same request may succeed.
bool passes(std::string_view type) {
  return type == "overloaded_error" || type == "api_error" || type == "rate_limit_error" ||
         type == "timeout_error";
}

void append(Json& object, const char* key, const std::string& more) {
  Json& value = object[key];
  if (!value.is_string()) value = std::string();
  value.get_ref<std::string&>() += more;
}

}  // namespace

Error anthropic_error(const Json& body) {
  const Json& error = member(body, "error");
  std::string type = string_or(error, "type", "error");
  std::string message = one_line(string_or(error, "message", "no reason given"), 500);
  return {passes(type) ? ErrorCode::unavailable : ErrorCode::failed_precondition,
          fmt::format("{}: {}", one_line(type), message),
          {}};
}

Status AnthropicDecoder::grow(std::size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > max_turn_bytes) return fail(ErrorCode::data_loss, "the model's message is too large");
  return {};
}

Status AnthropicDecoder::on_event(const SseEvent& event) {
  if (event.name == "ping") return {};
  ANCHORHOLD_CHECK(grow(event.data.size()));
  auto json = parse_json(event.data, SseParser::max_event_bytes);
  if (!json) return fail(ErrorCode::data_loss, "an event is not JSON: " + json.error().message);
  std::string type = string_or(*json, "type", event.name);
  if (type == "error" || event.name == "error") return fail(anthropic_error(*json));
  if (type == "message_start") {
    const Json& message = member(*json, "message");
    turn_.model = string_or(message, "model");
    read_usage(member(message, "usage"));
  } else if (type == "content_block_start") {
    return start_block(*json);
  } else if (type == "content_block_delta") {
    return add_delta(*json);
  } else if (type == "content_block_stop") {
    if (auto found = blocks_.find(uint_or(*json, "index")); found != blocks_.end()) {
      if (auto block = complete(found->second)) observer_.block_done(*block);
    }
  } else if (type == "message_delta") {
    const Json& delta = member(*json, "delta");
    if (std::string reason = string_or(delta, "stop_reason"); !reason.empty()) {
      has_stop_reason_ = true;
      turn_.stop_text = one_line(reason);
      turn_.stop_reason = stop_reason_from_anthropic(reason);
      turn_.stop_detail = one_line(string_or(member(delta, "stop_details"), "explanation"), 300);
    }
    read_usage(member(*json, "usage"));
  }
  return {};
}

// Counters are totals: those that are there replace the earlier ones.
void AnthropicDecoder::read_usage(const Json& usage) {
  turn_.usage.input_tokens = uint_or(usage, "input_tokens", turn_.usage.input_tokens);
  turn_.usage.output_tokens = uint_or(usage, "output_tokens", turn_.usage.output_tokens);
  turn_.usage.cache_write_tokens =
      uint_or(usage, "cache_creation_input_tokens", turn_.usage.cache_write_tokens);
  turn_.usage.cache_read_tokens = uint_or(usage, "cache_read_input_tokens", turn_.usage.cache_read_tokens);
}

Status AnthropicDecoder::start_block(const Json& event) {
  const Json& block = member(event, "content_block");
  if (!block.is_object()) return fail(ErrorCode::data_loss, "a block begins without its content");
  if (blocks_.size() >= max_turn_blocks)
    return fail(ErrorCode::data_loss, "the model's message has too many blocks");
  blocks_[uint_or(event, "index", blocks_.size())] = {block, {}, false};
  std::string type = string_or(block, "type");
  if (type == "text" && !string_or(block, "text").empty()) observer_.text_delta(string_or(block, "text"));
  if (type == "tool_use") observer_.tool_use_began(string_or(block, "name"));
  return {};
}

Status AnthropicDecoder::add_delta(const Json& event) {
  auto found = blocks_.find(uint_or(event, "index"));
  if (found == blocks_.end()) return fail(ErrorCode::data_loss, "a part of a block comes before the block");
  Partial& partial = found->second;
  const Json& delta = member(event, "delta");
  std::string type = string_or(delta, "type");
  if (type == "text_delta") {
    std::string text = string_or(delta, "text");
    append(partial.block, "text", text);
    observer_.text_delta(text);
  } else if (type == "input_json_delta") {
    partial.input += string_or(delta, "partial_json");
    partial.has_input = true;
  } else if (type == "thinking_delta") {
    std::string text = string_or(delta, "thinking");
    append(partial.block, "thinking", text);
    observer_.thinking_delta(text);
  } else if (type == "signature_delta") {
    partial.block["signature"] = string_or(delta, "signature");
  } else if (type == "citations_delta") {
    Json& citations = partial.block["citations"];
    if (!citations.is_array()) citations = Json::array();
    citations.push_back(member(delta, "citation"));
  } else {
    add_unknown_delta(partial.block, delta);
  }
  return {};
}

// As the known ones work: text is appended, anything else replaces.
void AnthropicDecoder::add_unknown_delta(Json& block, const Json& delta) {
  if (!delta.is_object()) return;
  for (const auto& [key, value] : delta.items()) {
    if (key == "type") continue;
    if (value.is_string()) {
      append(block, key.c_str(), value.get<std::string>());
    } else {
      block[key] = value;
    }
  }
}

std::optional<Block> AnthropicDecoder::complete(Partial& partial) {
  std::string type = string_or(partial.block, "type");
  if (type == "tool_use") {
    ToolUseBlock use{string_or(partial.block, "id"), string_or(partial.block, "name"), {}, false};
    const Json& input = member(partial.block, "input");
    set_input(use, partial.has_input || !input.is_object() ? partial.input : to_text(input));
    return use;
  }
  // A tool that the server runs: its arguments arrive in the same way.
  if (partial.has_input) {
    auto input = parse_json(partial.input.empty() ? "{}" : partial.input);
    partial.block["input"] = input ? *input : Json(partial.input);
  }
  return block_from_json(partial.block);
}

Result<Turn> AnthropicDecoder::finish() {
  if (!has_stop_reason_)
    return fail(ErrorCode::unavailable, "the connection ended in the middle of the message");
  for (auto& [index, partial] : blocks_) {
    auto block = complete(partial);
    if (!block) continue;
    const auto* text = std::get_if<TextBlock>(&*block);
    if (text && text->text.empty() && text->carried.empty()) continue;
    turn_.blocks.push_back(std::move(*block));
  }
  settle(turn_.blocks);
  return std::move(turn_);
}

}  // namespace anchorhold::agent
