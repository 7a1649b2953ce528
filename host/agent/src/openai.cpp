#include "openai.h"

#include <fmt/format.h>

#include "message_json.h"
#include "openai_decoder.h"
#include "wire.h"

namespace anchorhold::agent {
namespace {

constexpr const char* vendor_url = "https://api.openai.com/v1";
constexpr std::uint64_t vendor_context_tokens = 128'000;
constexpr std::uint64_t local_context_tokens = 32'768;
constexpr std::uint32_t output_tokens = 8'192;

// Results are messages of their own and come before whatever else the person's side says.
void add_user(Json& messages, const Message& message) {
  std::string text;
  for (const Block& block : message.blocks) {
    if (const auto* result = std::get_if<ToolResultBlock>(&block))
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", result->tool_use_id}, {"content", result->text}});
    if (const auto* said = std::get_if<TextBlock>(&block)) text += said->text;
  }
  if (!text.empty()) messages.push_back({{"role", "user"}, {"content", std::move(text)}});
}

// Reasoning goes back under the name it came with: some servers insist on it between tool calls. Other wires'
// blocks stay.
void add_assistant(Json& messages, const Message& message) {
  Json spoken = {{"role", "assistant"}, {"content", nullptr}};
  if (std::string text = text_of(message.blocks); !text.empty()) spoken["content"] = std::move(text);
  Json calls = Json::array();
  for (const Block& block : message.blocks) {
    if (const auto* use = std::get_if<ToolUseBlock>(&block))
      calls.push_back(
          {{"id", use->id},
           {"type", "function"},
           {"function",
            {{"name", use->name},
             {"arguments", use->malformed ? to_text(block_to_json(*use)["input"]) : use->input}}}});
    const auto* opaque = std::get_if<OpaqueBlock>(&block);
    if (!opaque || opaque->type != "openai.reasoning") continue;
    if (auto json = parse_json(opaque->json); json && !string_or(*json, "field").empty())
      spoken[string_or(*json, "field")] = string_or(*json, "text");
  }
  if (!calls.empty()) spoken["tool_calls"] = std::move(calls);
  if (spoken["content"].is_null() && !spoken.contains("tool_calls")) return;
  messages.push_back(std::move(spoken));
}

Wire::Refusal read_refusal(std::string_view body) {
  auto json = parse_json(body);
  if (!json) return {std::string(body), false};
  OpenAiError error = openai_error(*json);
  return {error.message.empty() ? std::string(body) : error.message, says_window_full(error)};
}

OpenAiDecoder::Form form_of(const HttpHead& head) {
  auto type = head.headers.find("content-type");
  bool whole = type != head.headers.end() && type->second.starts_with("application/json");
  return whole ? OpenAiDecoder::Form::whole : OpenAiDecoder::Form::events;
}

}  // namespace

Json openai_body(const TurnRequest& request, const std::string& model, bool vendor) {
  Json messages = Json::array();
  if (!request.system.empty()) messages.push_back({{"role", "system"}, {"content", request.system}});
  for (const Message& message : request.messages) {
    if (message.role == Role::user) {
      add_user(messages, message);
    } else {
      add_assistant(messages, message);
    }
  }
  Json body = {{"model", model},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"messages", std::move(messages)}};
  Json tools = Json::array();
  for (const ToolSpec& tool : request.tools) {
    auto schema = parse_json(tool.input_schema);
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", tool.name},
                       {"description", tool.description},
                       {"parameters", schema ? *schema : Json{{"type", "object"}}}}}});
  }
  if (!tools.empty()) body["tools"] = std::move(tools);
  if (request.max_tokens > 0) body[vendor ? "max_completion_tokens" : "max_tokens"] = request.max_tokens;
  return body;
}

Result<std::unique_ptr<Provider>> OpenAiProvider::create(std::string model, std::string base_url, Secret key,
                                                         std::uint64_t context_tokens, RetryPolicy retries) {
  bool vendor = base_url.empty();
  std::string base = vendor ? vendor_url : base_url;
  auto url = ANCHORHOLD_TRY(model_address(base));
  while (base.ends_with('/')) base.pop_back();
  base += url.path.empty() ? "/v1/chat/completions" : "/chat/completions";
  std::uint64_t usual = vendor ? vendor_context_tokens : local_context_tokens;
  ModelLimits limits{context_tokens > 0 ? context_tokens : usual, output_tokens};
  return std::unique_ptr<Provider>(new OpenAiProvider(std::move(model), std::move(base), url.host,
                                                      std::move(key), limits, vendor, retries));
}

Result<Turn> OpenAiProvider::stream(const TurnRequest& request, TurnObserver& observer,
                                    std::stop_token stop) {
  Wire wire;
  wire.request.url = url_;
  wire.request.headers = {"content-type: application/json", "accept: text/event-stream",
                          "user-agent: anchorhold"};
  wire.request.key_header = "authorization: Bearer ";
  wire.request.key = &key_;
  wire.request.body = to_text(openai_body(request, model_, vendor_));
  wire.make_decoder = [](TurnObserver& to, const HttpHead& head) {
    return std::make_unique<OpenAiDecoder>(to, form_of(head));
  };
  wire.read_refusal = read_refusal;
  wire.server = fmt::format("the model's server at {}", host_);
  return stream_turn(wire, retries_, observer, std::move(stop));
}

}  // namespace anchorhold::agent
