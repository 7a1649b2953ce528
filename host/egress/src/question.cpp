#include "egress/question.h"

#include <array>
#include <utility>

namespace anchorhold::egress {
namespace {

constexpr std::array<std::pair<Answer, std::string_view>, 5> names{{{Answer::once, "once"},
                                                                    {Answer::session, "session"},
                                                                    {Answer::always, "always"},
                                                                    {Answer::never, "never"},
                                                                    {Answer::deny, "deny"}}};

}  // namespace

std::string_view to_string(Answer answer) {
  for (const auto& [value, name] : names)
    if (value == answer) return name;
  return "deny";
}

std::optional<Answer> parse_answer(std::string_view text) {
  for (const auto& [value, name] : names)
    if (name == text) return value;
  return std::nullopt;
}

}  // namespace anchorhold::egress
