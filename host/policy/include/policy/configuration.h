// The person's configuration file, ~/.config/anchorhold/config.toml. Read whole or refused whole: an unknown
// key, a wrong type or a host that is no host is an error that names line, key and what is allowed, and
// nothing of the file is used.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "policy/egress_policy.h"

namespace anchorhold::policy {

struct EgressConfiguration {
  EgressAction unnamed = EgressAction::ask;  // "ask" or "deny"
  std::chrono::milliseconds ask_timeout = std::chrono::seconds(60);
  std::vector<std::filesystem::path> extra_ca;  // absolute paths of PEM files
  std::vector<EgressRule> rules;                // each with source "<name>:<line>"
};

struct Configuration {
  EgressConfiguration egress;
};

inline constexpr std::string_view configuration_file = "config.toml";
inline constexpr std::size_t max_configuration_bytes = 1 << 20;

// `name` is what messages and rules call the text.
Result<Configuration> parse_configuration(std::string_view text, std::string_view name);

// "HOST" or "HOST:PORT" of --allow and --deny; without a port, 443 and 80.
Result<EgressRule> parse_rule_argument(std::string_view argument, EgressAction action);

}  // namespace anchorhold::policy
