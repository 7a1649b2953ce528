#include "git_judge.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::egress {

GitAdmission judge_git(const GitRequest& request, const std::optional<GitPush>& push,
                       const policy::EgressRule& rule) {
  if (!request.carries_commands) return {};
  if (!push) return {"the policy changed while the push began", {}};
  GitPushJudgement judgement = judge_git_push(*push, request.repository, rule.git);
  if (judgement.allowed()) return {};
  std::string reason =
      fmt::format("{}, by the rule for {} ({})", judgement.reason, rule.host.text(), rule.source);
  std::string words = fmt::format(
      "anchorhold: {}\nThis is decided outside of this machine. If the task needs it, say so to the person.",
      reason);
  return {reason, git_push_report(*push, judgement, words)};
}

void describe_git(EventReport& report, const GitRequest& request, const GitPush& push) {
  report.git_repository = request.repository;
  report.git_operation = policy::to_string(request.operation);
  report.git_refs = text_of_refs(push);
}

bool is_named(const Field& field, std::string_view lower_name) {
  return std::equal(field.name.begin(), field.name.end(), lower_name.begin(), lower_name.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
}

}  // namespace anchorhold::egress
