// The answers `always` and `never` that a person gave to questions, kept for later sessions: rules in
// answers.toml beside the person's own config.toml, in the same words, each with the day and the session it
// was given in as its comment. Only this program writes the file; a person may edit it all the same.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "policy/egress_policy.h"

namespace anchorhold::policy {

inline constexpr std::string_view answers_file = "answers.toml";

// Rules alone; everything else that a configuration may say is an error here.
Result<std::vector<EgressRule>> parse_answers(std::string_view text, std::string_view name = answers_file);

// One rule as [[egress.rule]] says it, without its source.
std::string to_toml(const EgressRule& rule);

// The text with the answer at its end, and without those that were given for the same destination before.
Result<std::string> with_answer(std::string_view text, const EgressRule& answer, std::string_view comment);

// `which`: "HOST" (all of its answers), "HOST:PORT", or "answers.toml:LINE". not_found when no answer is
// meant.
struct Forgotten {
  std::string text;
  std::vector<EgressRule> rules;
};
Result<Forgotten> without_answers(std::string_view text, std::string_view which);

// The same in the file of this folder, replaced as a whole; a symlink stays one. One process at a time.
Status keep_answer(const std::filesystem::path& folder, const EgressRule& answer, std::string_view comment);
Result<std::vector<EgressRule>> forget_answers(const std::filesystem::path& folder, std::string_view which);

}  // namespace anchorhold::policy
