#include "stop_reasons.h"

#include <array>
#include <utility>

namespace anchorhold::agent {
namespace {

using Entry = std::pair<std::string_view, StopReason>;

constexpr std::array anthropic_words{
    Entry{"end_turn", StopReason::end_turn},
    Entry{"tool_use", StopReason::tool_use},
    Entry{"max_tokens", StopReason::max_tokens},
    Entry{"stop_sequence", StopReason::stop_sequence},
    Entry{"pause_turn", StopReason::pause_turn},
    Entry{"refusal", StopReason::refusal},
    Entry{"model_context_window_exceeded", StopReason::context_exceeded},
};

constexpr std::array openai_words{
    Entry{"stop", StopReason::end_turn},          Entry{"eos", StopReason::end_turn},
    Entry{"end_turn", StopReason::end_turn},      Entry{"eos_token", StopReason::end_turn},
    Entry{"tool_calls", StopReason::tool_use},    Entry{"tool_call", StopReason::tool_use},
    Entry{"function_call", StopReason::tool_use}, Entry{"tool_use", StopReason::tool_use},
    Entry{"length", StopReason::max_tokens},      Entry{"max_tokens", StopReason::max_tokens},
    Entry{"limit", StopReason::max_tokens},       Entry{"stop_sequence", StopReason::stop_sequence},
    Entry{"content_filter", StopReason::refusal}, Entry{"refusal", StopReason::refusal},
};

template <std::size_t size>
StopReason look_up(const std::array<Entry, size>& words, std::string_view word) {
  for (const auto& [text, reason] : words) {
    if (text == word) return reason;
  }
  return StopReason::other;
}

}  // namespace

StopReason stop_reason_from_anthropic(std::string_view word) {
  return look_up(anthropic_words, word);
}
StopReason stop_reason_from_openai(std::string_view word) {
  return look_up(openai_words, word);
}

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::end_turn:
      return "end_turn";
    case StopReason::tool_use:
      return "tool_use";
    case StopReason::max_tokens:
      return "max_tokens";
    case StopReason::stop_sequence:
      return "stop_sequence";
    case StopReason::pause_turn:
      return "pause_turn";
    case StopReason::refusal:
      return "refusal";
    case StopReason::context_exceeded:
      return "context_exceeded";
    case StopReason::script_end:
      return "script_end";
    case StopReason::other:
      return "other";
  }
  return "other";
}

}  // namespace anchorhold::agent
