#include "anthropic.h"

#include <fmt/format.h>

#include "anthropic_decoder.h"
#include "message_json.h"
#include "wire.h"

namespace anchorhold::agent {
namespace {

constexpr const char* vendor_url = "https://api.anthropic.com";
constexpr const char* api_version = "2023-06-01";
constexpr std::uint64_t usual_context_tokens = 200'000;
constexpr std::uint32_t output_tokens = 32'000;
constexpr std::size_t marked_messages = 2;

bool is_ours(const Block& block) {
  if (const auto* text = std::get_if<TextBlock>(&block)) return !text->text.empty() || !text->carried.empty();
  const auto* opaque = std::get_if<OpaqueBlock>(&block);
  return !opaque || !opaque->type.starts_with("openai.");
}

Json content_of(const Message& message) {
  Json content = Json::array();
  for (const Block& block : message.blocks) {
    if (is_ours(block)) content.push_back(block_to_json(block));
  }
  return content;
}

void mark_for_cache(Json& messages) {
  std::size_t marked = 0;
  for (auto message = messages.rbegin(); message != messages.rend() && marked < marked_messages; ++message) {
    if ((*message)["role"] != "user") continue;
    (*message)["content"].back()["cache_control"] = {{"type", "ephemeral"}};
    ++marked;
  }
}

Wire::Refusal read_refusal(std::string_view body) {
  auto json = parse_json(body);
  if (!json) return {std::string(body), false};
  std::string message = string_or(member(*json, "error"), "message");
  return {message.empty() ? std::string(body) : message, message.starts_with("prompt is too long")};
}

}  // namespace

Json anthropic_body(const TurnRequest& request, const std::string& model, std::uint32_t max_tokens) {
  Json body = {{"model", model}, {"max_tokens", max_tokens}, {"stream", true}};
  if (!request.system.empty())
    body["system"] = Json::array(
        {{{"type", "text"}, {"text", request.system}, {"cache_control", {{"type", "ephemeral"}}}}});
  Json tools = Json::array();
  for (const ToolSpec& tool : request.tools) {
    auto schema = parse_json(tool.input_schema);
    tools.push_back({{"name", tool.name},
                     {"description", tool.description},
                     {"input_schema", schema ? *schema : Json{{"type", "object"}}}});
  }
  if (!tools.empty()) body["tools"] = std::move(tools);
  Json messages = Json::array();
  for (const Message& message : request.messages) {
    Json content = content_of(message);
    if (!content.empty())
      messages.push_back(
          {{"role", message.role == Role::user ? "user" : "assistant"}, {"content", std::move(content)}});
  }
  mark_for_cache(messages);
  body["messages"] = std::move(messages);
  return body;
}

Result<std::unique_ptr<Provider>> AnthropicProvider::create(std::string model, std::string base_url,
                                                            Secret key, std::uint64_t context_tokens,
                                                            RetryPolicy retries) {
  std::string base = base_url.empty() ? vendor_url : base_url;
  auto url = ANCHORHOLD_TRY(model_address(base));
  while (base.ends_with('/')) base.pop_back();
  base += url.path.ends_with("/v1") ? "/messages" : "/v1/messages";
  ModelLimits limits{context_tokens > 0 ? context_tokens : usual_context_tokens, output_tokens};
  return std::unique_ptr<Provider>(
      new AnthropicProvider(std::move(model), std::move(base), url.host, std::move(key), limits, retries));
}

Result<Turn> AnthropicProvider::stream(const TurnRequest& request, TurnObserver& observer,
                                       std::stop_token stop) {
  std::uint32_t max_tokens = request.max_tokens > 0 ? request.max_tokens : limits_.output_tokens;
  Wire wire;
  wire.request.url = url_;
  wire.request.headers = {"content-type: application/json", "accept: text/event-stream",
                          fmt::format("anthropic-version: {}", api_version), "user-agent: anchorhold"};
  wire.request.key_header = "x-api-key: ";
  wire.request.key = &key_;
  wire.request.body = to_text(anthropic_body(request, model_, max_tokens));
  wire.make_decoder = [](TurnObserver& to, const HttpHead&) {
    return std::make_unique<AnthropicDecoder>(to);
  };
  wire.read_refusal = read_refusal;
  wire.server = fmt::format("the model's server at {}", host_);
  return stream_turn(wire, retries_, observer, std::move(stop));
}

}  // namespace anchorhold::agent
