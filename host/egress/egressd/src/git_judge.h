// What both versions of HTTP do with a request of Git.
#pragma once

#include <optional>
#include <string>

#include "egress/control.h"
#include "egress/git.h"
#include "policy/egress_policy.h"

namespace anchorhold::egress {

struct GitAdmission {
  std::string reason;  // empty: it may go on
  std::string answer;  // what tells a client of Git so, when there is such an answer
};
// `push`: the commands, of a request that carries them. Under the rule that is in force now.
GitAdmission judge_git(const GitRequest& request, const std::optional<GitPush>& push,
                       const policy::EgressRule& rule);

void describe_git(EventReport& report, const GitRequest& request, const GitPush& push);

// Compares a field's name, whatever its case.
bool is_named(const Field& field, std::string_view lower_name);

}  // namespace anchorhold::egress
