// A model behind one of the wires we speak. stream() asks for one turn and reports it as it arrives. A
// provider is used by one thread at a time; stream() blocks that thread and returns soon after a stop
// request.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "agent/message.h"
#include "base/clock.h"
#include "base/error.h"

namespace anchorhold::agent {

struct ToolSpec {
  std::string name;
  std::string description;
  std::string input_schema;  // JSON Schema of an object, as text
};

struct TurnRequest {
  std::string system;
  std::vector<Message> messages;
  std::vector<ToolSpec> tools;
  std::uint32_t max_tokens = 0;  // 0: the provider's own limit
};

enum class StopReason {
  end_turn,
  tool_use,
  max_tokens,
  stop_sequence,
  pause_turn,  // send the conversation back as it is, to go on
  refusal,
  context_exceeded,  // the model's window is full
  script_end,        // a scripted provider has no more turns
  other,             // one we do not know; Turn::stop_text has its name
};
std::string_view to_string(StopReason reason);

struct Turn {
  std::vector<Block> blocks;
  StopReason stop_reason = StopReason::end_turn;
  std::string stop_text;    // the wire's own word for it
  std::string stop_detail;  // the server's explanation of a refusal, if it gave one
  Usage usage;
  std::string model;  // as the server named it
};

// What is heard while a turn arrives; called on the thread inside stream().
class TurnObserver {
 public:
  virtual ~TurnObserver() = default;
  virtual void text_delta(std::string_view) {}
  virtual void thinking_delta(std::string_view) {}
  // A tool call begins to arrive; its arguments are not complete yet.
  virtual void tool_use_began(std::string_view /*name*/) {}
  virtual void block_done(const Block&) {}
  // The turn is asked for again, after the delay: what was shown of it is void. Nothing of it was run or
  // kept.
  virtual void restarted(std::string_view /*reason*/, std::chrono::milliseconds /*delay*/) {}
};

struct ModelLimits {
  std::uint64_t context_tokens = 0;
  std::uint32_t output_tokens = 0;
};

class Provider {
 public:
  virtual ~Provider() = default;
  virtual Result<Turn> stream(const TurnRequest& request, TurnObserver& observer, std::stop_token stop) = 0;
  virtual ModelLimits limits() const = 0;
  virtual std::string name() const = 0;  // "anthropic", "openai", "scripted"; for events and messages
  virtual std::string model() const = 0;
};

// What the person chose. Keys are never in here: they come from ANTHROPIC_API_KEY or OPENAI_API_KEY, or the
// key file.
struct ProviderSpec {
  std::string model;                 // "anthropic:NAME", "openai:NAME", "scripted:FILE"
  std::string base_url;              // empty: the vendor's
  std::filesystem::path key_file;    // empty: the environment
  std::uint64_t context_tokens = 0;  // 0: the provider's guess
};
// Reads the key or the script; does not connect. A missing key is failed_precondition with a hint; for
// "openai:" with a base URL it is not missed, since local servers want none.
Result<std::unique_ptr<Provider>> make_provider(const ProviderSpec& spec);

}  // namespace anchorhold::agent
