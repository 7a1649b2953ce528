#include "openai_decoder.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "message_json.h"
#include "stop_reasons.h"
#include "text.h"

namespace anchorhold::agent {
namespace {

constexpr std::array reasoning_fields{"reasoning_content", "reasoning", "thinking"};

bool is_whole_object(const std::string& arguments) {
  auto json = parse_json(arguments);
  return json && json->is_object();
}

}  // namespace

OpenAiError openai_error(const Json& body) {
  const Json& error = member(body, "error");
  if (error.is_string()) return {error.get<std::string>(), {}};
  const Json& from = error.is_object() ? error : body;
  const Json& code = member(from, "code");
  std::string type = string_or(from, "type");
  return {string_or(from, "message"), code.is_string() ? code.get<std::string>() : type};
}

bool says_window_full(const OpenAiError& error) {
  return error.code == "context_length_exceeded" || error.code == "exceed_context_size_error" ||
         error.message.find("maximum context length") != std::string::npos ||
         error.message.find("exceeds the available context size") != std::string::npos;
}

OpenAiDecoder::OpenAiDecoder(TurnObserver& observer, Form form) : observer_(observer), form_(form) {}

Status OpenAiDecoder::grow(std::size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > max_turn_bytes) return fail(ErrorCode::data_loss, "the model's message is too large");
  return {};
}

Status OpenAiDecoder::feed(std::string_view bytes) {
  ANCHORHOLD_CHECK(grow(bytes.size()));
  if (form_ == Form::events) return sse_.feed(bytes);
  whole_ += bytes;
  return {};
}

Status OpenAiDecoder::on_event(const SseEvent& event) {
  if (done_) return {};
  if (event.data == "[DONE]") {
    done_ = true;
    return {};
  }
  auto json = parse_json(event.data, SseParser::max_event_bytes);
  if (!json) return fail(ErrorCode::data_loss, "a chunk is not JSON: " + json.error().message);
  return on_chunk(*json);
}

Status OpenAiDecoder::on_chunk(const Json& chunk) {
  const Json& error = member(chunk, "error");
  if (!error.is_null() && !(error.is_object() && error.empty())) {
    OpenAiError said = openai_error(chunk);
    if (says_window_full(said)) {
      turn_.stop_reason = StopReason::context_exceeded;
      turn_.stop_text = one_line(said.message);
      has_finish_reason_ = done_ = true;
      return {};
    }
    bool final = said.code == "invalid_request_error" || said.code == "insufficient_quota";
    return fail(final ? ErrorCode::failed_precondition : ErrorCode::unavailable, one_line(said.message, 500));
  }
  if (std::string model = string_or(chunk, "model"); !model.empty()) turn_.model = model;
  read_usage(member(chunk, "usage"));
  const Json& choices = member(chunk, "choices");
  if (!choices.is_array()) return {};
  for (const Json& choice : choices) {
    if (uint_or(choice, "index") == 0) ANCHORHOLD_CHECK(on_choice(choice));
  }
  return {};
}

Status OpenAiDecoder::on_choice(const Json& choice) {
  const Json& delta = member(choice, "delta");
  ANCHORHOLD_CHECK(on_delta(delta.is_object() ? delta : member(choice, "message")));
  if (std::string reason = string_or(choice, "finish_reason"); !reason.empty()) {
    has_finish_reason_ = true;
    turn_.stop_text = one_line(reason);
    turn_.stop_reason = stop_reason_from_openai(reason);
  }
  return {};
}

Status OpenAiDecoder::on_delta(const Json& delta) {
  if (std::string text = string_or(delta, "content"); !text.empty()) {
    text_ += text;
    observer_.text_delta(text);
  }
  if (std::string text = string_or(delta, "refusal"); !text.empty()) {
    refused_ = true;
    text_ += text;
    observer_.text_delta(text);
  }
  for (const char* field : reasoning_fields) {
    std::string text = string_or(delta, field);
    if (text.empty() || (!reasoning_field_.empty() && reasoning_field_ != field)) continue;
    reasoning_field_ = field;
    reasoning_ += text;
    observer_.thinking_delta(text);
  }
  const Json& calls = member(delta, "tool_calls");
  if (!calls.is_array()) return {};
  for (const Json& piece : calls) ANCHORHOLD_CHECK(on_call(piece));
  return {};
}

// Which call a piece belongs to. Normally the index says it. Servers that give none, or 0 for every call, are
// told apart by a new id, or by a name that comes after the arguments of the call before were complete.
OpenAiDecoder::Call* OpenAiDecoder::call_for(const Json& piece) {
  std::string id = string_or(piece, "id");
  std::string name = string_or(member(piece, "function"), "name");
  bool has_index = member(piece, "index").is_number_integer();
  std::uint64_t index = uint_or(piece, "index");
  Call* found = nullptr;
  if (has_index) {
    auto same = std::find_if(calls_.rbegin(), calls_.rend(),
                             [&](const Call& call) { return call.has_index && call.index == index; });
    if (same != calls_.rend()) found = &*same;
  } else if (!calls_.empty()) {
    found = &calls_.back();
    if (!id.empty() && id != found->id) found = nullptr;
  }
  bool other_id = found && !id.empty() && !found->id.empty() && found->id != id;
  bool next_whole = found && !name.empty() && id.empty() && is_whole_object(found->arguments);
  if (found && !other_id && !next_whole) return found;
  if (calls_.size() >= max_turn_blocks) return nullptr;
  calls_.push_back({index, has_index, id, {}, {}});
  return &calls_.back();
}

Status OpenAiDecoder::on_call(const Json& piece) {
  if (!piece.is_object()) return {};
  Call* call = call_for(piece);
  if (!call) return fail(ErrorCode::data_loss, "the model's message has too many tool calls");
  if (call->id.empty()) call->id = string_or(piece, "id");
  const Json& function = member(piece, "function");
  if (std::string name = string_or(function, "name"); !name.empty() && call->name.empty()) {
    call->name = name;
    observer_.tool_use_began(name);
  }
  const Json& arguments = member(function, "arguments");
  if (arguments.is_string()) {
    call->arguments += arguments.get<std::string>();
  } else if (!arguments.is_null()) {
    call->arguments += to_text(arguments);
  }
  return {};
}

void OpenAiDecoder::read_usage(const Json& usage) {
  if (!usage.is_object()) return;
  std::uint64_t input = uint_or(usage, "prompt_tokens");
  std::uint64_t cached = std::min(input, uint_or(member(usage, "prompt_tokens_details"), "cached_tokens"));
  turn_.usage = {input - cached, uint_or(usage, "completion_tokens"), cached, 0};
}

Result<Turn> OpenAiDecoder::finish() {
  if (form_ == Form::whole) {
    auto json = parse_json(whole_, max_turn_bytes);
    if (!json) return fail(ErrorCode::data_loss, "the answer is not JSON: " + json.error().message);
    ANCHORHOLD_CHECK(on_chunk(*json));
    done_ = true;
  }
  if (!has_finish_reason_ && !done_)
    return fail(ErrorCode::unavailable, "the connection ended in the middle of the message");
  if (!reasoning_.empty())
    turn_.blocks.push_back(OpaqueBlock{
        "openai.reasoning",
        to_text({{"type", "openai.reasoning"}, {"field", reasoning_field_}, {"text", reasoning_}})});
  if (!text_.empty()) turn_.blocks.push_back(TextBlock{text_, {}});
  for (Call& call : calls_) {
    ToolUseBlock use{call.id, call.name, {}, false};
    set_input(use, call.arguments);
    turn_.blocks.push_back(std::move(use));
  }
  settle(turn_.blocks);
  for (const Block& block : turn_.blocks) observer_.block_done(block);
  if (!has_finish_reason_) turn_.stop_reason = calls_.empty() ? StopReason::end_turn : StopReason::tool_use;
  if (refused_ && calls_.empty()) turn_.stop_reason = StopReason::refusal;
  return std::move(turn_);
}

}  // namespace anchorhold::agent
