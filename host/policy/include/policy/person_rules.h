// What a person allows and denies, read from their folder: config.toml, which they write, and answers.toml,
// which their answers write. Both whole, or nothing.
#pragma once

#include <filesystem>
#include <vector>

#include "policy/configuration.h"

namespace anchorhold::policy {

struct PersonRules {
  EgressConfiguration configured;
  std::vector<EgressRule> kept;
};

// A file that is not there is an empty one; one that cannot be read, that leads nowhere or that says anything
// that is not understood is an error. unavailable: one of them is being written just now.
Result<PersonRules> read_person_rules(const std::filesystem::path& folder);
// The same, and waits a moment for whoever writes.
Result<PersonRules> load_person_rules(const std::filesystem::path& folder);

// Puts them in the place of those that are in the policy.
void apply(const PersonRules& rules, EgressPolicy& policy);

}  // namespace anchorhold::policy
