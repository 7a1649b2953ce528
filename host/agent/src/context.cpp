#include "context.h"

#include <algorithm>
#include <fmt/format.h>

#include "json.h"
#include "text.h"

namespace anchorhold::agent {
namespace {

constexpr std::size_t short_enough = 400;  // bytes; not worth shortening
constexpr std::size_t kept_of_result = 160;
constexpr std::size_t kept_of_argument = 120;
constexpr std::uint64_t fixed_tokens_per_message = 4;

void shorten_result(ToolResultBlock& result, std::uint64_t number) {
  if (result.text.size() <= short_enough) return;
  result.text = fmt::format(
      "{}\n[shortened to save room: this result has {} bytes; read_output, call {}, gives it again]",
      prefix_at_boundary(result.text, kept_of_result), grouped(result.text.size()), number);
}

void shorten_strings(Json& value) {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    if (text.size() > short_enough)
      text = fmt::format("{} [shortened: {} bytes]", prefix_at_boundary(text, kept_of_argument),
                         grouped(text.size()));
  } else if (value.is_structured()) {
    for (auto& item : value) shorten_strings(item);
  }
}

void shorten_arguments(ToolUseBlock& use) {
  if (use.input.size() <= short_enough) return;
  if (use.malformed) {
    use.input = prefix_at_boundary(use.input, kept_of_argument);
    return;
  }
  if (auto input = parse_json(use.input)) {
    shorten_strings(*input);
    use.input = to_text(*input);
  }
}

std::uint64_t bytes_of(const Block& block) {
  if (const auto* text = std::get_if<TextBlock>(&block))
    return std::max(text->text.size(), text->carried.size());
  if (const auto* use = std::get_if<ToolUseBlock>(&block))
    return use->input.size() + use->name.size() + use->id.size();
  if (const auto* result = std::get_if<ToolResultBlock>(&block))
    return result->text.size() + result->tool_use_id.size();
  return std::get<OpaqueBlock>(block).json.size();
}

std::uint64_t bytes_of(const TurnRequest& request) {
  std::uint64_t bytes = request.system.size();
  for (const auto& tool : request.tools)
    bytes += tool.name.size() + tool.description.size() + tool.input_schema.size();
  for (const auto& message : request.messages) {
    for (const auto& block : message.blocks) bytes += bytes_of(block);
  }
  return bytes;
}

}  // namespace

std::vector<Message> shortened(const std::vector<Message>& messages, std::uint64_t through) {
  std::vector<Message> result = messages;
  std::uint64_t uses = 0;
  std::uint64_t results = 0;
  for (Message& message : result) {
    for (Block& block : message.blocks) {
      if (auto* use = std::get_if<ToolUseBlock>(&block); use && ++uses <= through) shorten_arguments(*use);
      if (auto* answer = std::get_if<ToolResultBlock>(&block); answer && ++results <= through)
        shorten_result(*answer, results);
    }
  }
  return result;
}

std::uint64_t count_calls(const std::vector<Message>& messages) {
  std::uint64_t count = 0;
  for (const auto& message : messages) {
    count += static_cast<std::uint64_t>(
        std::count_if(message.blocks.begin(), message.blocks.end(),
                      [](const Block& block) { return std::holds_alternative<ToolUseBlock>(block); }));
  }
  return count;
}

std::uint64_t TokenEstimate::of(const TurnRequest& request) const {
  return static_cast<std::uint64_t>(static_cast<double>(bytes_of(request)) * tokens_per_byte_) +
         request.messages.size() * fixed_tokens_per_message;
}

// Only upwards in one step and slowly downwards: a guess too low costs a failed request, one too high a
// little room.
void TokenEstimate::correct(const TurnRequest& request, std::uint64_t counted) {
  auto bytes = static_cast<double>(bytes_of(request));
  if (counted == 0 || bytes < 1000) return;
  double seen = std::clamp(static_cast<double>(counted) / bytes, 0.1, 1.5);
  tokens_per_byte_ = seen > tokens_per_byte_ ? seen : tokens_per_byte_ * 0.8 + seen * 0.2;
}

std::uint64_t input_budget(const ModelLimits& limits) {
  std::uint64_t answer = std::min<std::uint64_t>(limits.output_tokens, limits.context_tokens / 4);
  return (limits.context_tokens - answer) / 100 * 95;
}

std::optional<Fit> fit(const TurnRequest& whole, std::uint64_t through, std::uint64_t budget,
                       const TokenEstimate& estimate) {
  Fit result{through, whole};
  auto size_at = [&](std::uint64_t candidate) {
    result.through = candidate;
    result.request.messages = shortened(whole.messages, candidate);
    return estimate.of(result.request);
  };
  if (size_at(through) <= budget) return result;
  // Sizes fall as `through` grows: the first that reaches half of the budget, else everything.
  std::uint64_t low = through + 1;
  std::uint64_t high = std::max(count_calls(whole.messages), through);
  while (low < high) {
    std::uint64_t middle = low + (high - low) / 2;
    if (size_at(middle) <= budget / 2) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (size_at(high) <= budget) return result;
  return std::nullopt;
}

}  // namespace anchorhold::agent
