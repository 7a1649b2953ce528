#include "scripted.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/files.h"
#include "message_json.h"
#include "stop_reasons.h"

namespace anchorhold::agent {
namespace {

constexpr std::size_t max_script_bytes = 16u << 20;
constexpr std::string_view last_result_mark = "{{last_result}}";

void replace_marks(Json& value, const std::string& last_result) {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    for (std::size_t at = text.find(last_result_mark); at != text.npos;
         at = text.find(last_result_mark, at + last_result.size()))
      text.replace(at, last_result_mark.size(), last_result);
  } else if (value.is_structured()) {
    for (auto& item : value) replace_marks(item, last_result);
  }
}

std::string last_result_of(const std::vector<Message>& messages) {
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    for (auto block = message->blocks.rbegin(); block != message->blocks.rend(); ++block) {
      if (const auto* result = std::get_if<ToolResultBlock>(&*block)) return result->text;
    }
  }
  return {};
}

Status check_turn(const Json& turn, std::size_t number) {
  auto wrong = [&](std::string_view what) {
    return fail(ErrorCode::invalid_argument, fmt::format("turn {}: {}", number, what));
  };
  if (!turn.is_object()) return wrong("is not an object");
  const Json& content = member(turn, "content");
  if (!content.is_array() || content.empty()) return wrong("\"content\" is not an array of blocks");
  for (const Json& block : content) {
    if (!block_from_json(block)) return wrong("a block has no \"type\", or a tool_use no \"name\"");
    if (string_or(block, "type") == "tool_use" && !member(block, "input").is_object())
      return wrong("the \"input\" of a tool_use is not an object");
  }
  return {};
}

void report(const Block& block, TurnObserver& observer) {
  if (const auto* text = std::get_if<TextBlock>(&block)) observer.text_delta(text->text);
  if (const auto* use = std::get_if<ToolUseBlock>(&block)) observer.tool_use_began(use->name);
  observer.block_done(block);
}

}  // namespace

Result<std::unique_ptr<ScriptedProvider>> ScriptedProvider::load(const std::filesystem::path& file) {
  auto text = read_file(file, max_script_bytes);
  if (!text) {
    auto error = with_context(text.error(), "reading the script");
    error.hint = "scripted:FILE names a file that begins with {\"turns\": [";
    return fail(std::move(error));
  }
  return parse(*text, file.filename().string());
}

Result<std::unique_ptr<ScriptedProvider>> ScriptedProvider::parse(std::string_view text, std::string name) {
  auto json = parse_json(text, max_script_bytes);
  constexpr const char* form = R"(write {"turns": [{"content": [{"type": "text", "text": "…"}]}]})";
  auto faulty = [&](Error error) {
    error = with_context(std::move(error), fmt::format("the script {}", name));
    error.hint = form;
    return fail(std::move(error));
  };
  if (!json) return faulty(json.error());
  const Json& turns = member(*json, "turns");
  if (!turns.is_array())
    return fail(ErrorCode::invalid_argument, fmt::format("the script {} has no array \"turns\"", name), form);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (auto good = check_turn(turns[i], i + 1); !good) return faulty(good.error());
  }
  return std::unique_ptr<ScriptedProvider>(new ScriptedProvider(turns, std::move(name)));
}

Result<Turn> ScriptedProvider::stream(const TurnRequest& request, TurnObserver& observer,
                                      std::stop_token stop) {
  if (stop.stop_requested()) return fail(ErrorCode::cancelled, "stopped");
  auto given =
      static_cast<std::size_t>(std::count_if(request.messages.begin(), request.messages.end(),
                                             [](const Message& m) { return m.role == Role::assistant; }));
  Turn turn;
  turn.model = name_;
  if (given >= turns_.size()) {
    turn.stop_reason = StopReason::script_end;
    return turn;
  }
  Json content = turns_[given]["content"];
  replace_marks(content, last_result_of(request.messages));
  bool uses_tools = false;
  for (std::size_t i = 0; i < content.size(); ++i) {
    auto block = block_from_json(content[i]);
    if (!block)
      return fail(ErrorCode::invalid_argument,
                  fmt::format("turn {} of the script became invalid", given + 1));
    if (auto* use = std::get_if<ToolUseBlock>(&*block)) {
      if (use->id.empty()) use->id = fmt::format("scripted_{}_{}", given + 1, i + 1);
      uses_tools = true;
    }
    report(*block, observer);
    turn.blocks.push_back(std::move(*block));
  }
  turn.stop_text = string_or(turns_[given], "stop_reason", uses_tools ? "tool_use" : "end_turn");
  turn.stop_reason = stop_reason_from_anthropic(turn.stop_text);
  return turn;
}

}  // namespace anchorhold::agent
