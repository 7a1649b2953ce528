#include "policy/person_rules.h"

#include <chrono>
#include <fmt/format.h>
#include <thread>

#include "base/files.h"
#include "policy/answers.h"

namespace anchorhold::policy {
namespace {

constexpr std::chrono::milliseconds writing_step(10);
constexpr int writing_steps = 100;

Result<std::string> text_of(const std::filesystem::path& path) {
  auto text = read_file_at_rest(path, max_configuration_bytes);
  if (text || text.error().code != ErrorCode::not_found) return text;
  // A link that leads nowhere is not the same as no file: what it led to may have denied something.
  std::error_code error;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, error)))
    return fail(ErrorCode::failed_precondition,
                fmt::format("{} leads to a file that is not there", path.string()));
  return std::string();
}

}  // namespace

Result<PersonRules> read_person_rules(const std::filesystem::path& folder) {
  PersonRules rules;
  std::string text = ANCHORHOLD_TRY(text_of(folder / configuration_file));
  rules.configured = ANCHORHOLD_TRY(parse_configuration(text, configuration_file)).egress;
  text = ANCHORHOLD_TRY(text_of(folder / answers_file));
  rules.kept = ANCHORHOLD_TRY(parse_answers(text));
  return rules;
}

Result<PersonRules> load_person_rules(const std::filesystem::path& folder) {
  for (int step = 0;; ++step) {
    auto rules = read_person_rules(folder);
    if (rules || rules.error().code != ErrorCode::unavailable || step == writing_steps) return rules;
    std::this_thread::sleep_for(writing_step);
  }
}

void apply(const PersonRules& rules, EgressPolicy& policy) {
  policy.user = rules.configured.rules;
  policy.unnamed = rules.configured.unnamed;
  policy.kept = rules.kept;
  policy.broken.clear();
}

}  // namespace anchorhold::policy
