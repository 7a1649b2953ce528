// The conversation with a model, in one form for all providers: that of the Messages API, to which the others
// translate. Source: https://docs.anthropic.com/en/api/messages. JSON is held as text so that what a provider
// sent is carried unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace anchorhold::agent {

struct TextBlock {
  std::string text;
  std::string
      carried;  // the block as received, when it has more fields than its text (citations); else empty
};

struct ToolUseBlock {
  std::string id;
  std::string name;
  std::string input;       // a JSON object; or, when malformed, the text that should have been one
  bool malformed = false;  // input is not a JSON object: the tool is not run, the model is told
};

struct ToolResultBlock {
  std::string tool_use_id;
  std::string text;
  bool is_error = false;
};

// Thinking, redacted thinking, server tools, and whatever comes later: stored and sent back as received.
struct OpaqueBlock {
  std::string type;
  std::string json;
};

using Block = std::variant<TextBlock, ToolUseBlock, ToolResultBlock, OpaqueBlock>;

enum class Role { user, assistant };

struct Message {
  Role role = Role::user;
  std::vector<Block> blocks;
};

struct Usage {
  std::uint64_t input_tokens = 0;  // those not read from or written to the cache
  std::uint64_t output_tokens = 0;
  std::uint64_t cache_read_tokens = 0;
  std::uint64_t cache_write_tokens = 0;
  std::uint64_t total() const {
    return input_tokens + output_tokens + cache_read_tokens + cache_write_tokens;
  }
  Usage& operator+=(const Usage& other);
};

// The blocks of one message as a JSON array in the Messages API's form, and back (limits on size and depth
// hold).
std::string blocks_to_json(const std::vector<Block>& blocks);
Result<std::vector<Block>> blocks_from_json(std::string_view json);

// All text of the message, joined.
std::string text_of(const std::vector<Block>& blocks);

}  // namespace anchorhold::agent
