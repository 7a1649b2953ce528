#include "policy/egress_policy.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::policy {
namespace {

const EgressRule* find(const std::vector<EgressRule>& rules, const Destination& destination,
                       EgressAction action) {
  for (const EgressRule& rule : rules)
    if (rule.action == action && rule.covers(destination)) return &rule;
  return nullptr;
}

EgressDecision decided(EgressAction action, RuleOrigin origin, const EgressRule& rule,
                       const Destination& destination) {
  constexpr auto verb = [](EgressAction a) {
    return a == EgressAction::allow ? "allowed" : a == EgressAction::deny ? "denied" : "asked about";
  };
  return {action, origin, &rule,
          fmt::format("{} is {} by the rule for {} ({})", destination.text(), verb(action), rule.host.text(),
                      rule.source)};
}

// "%2e%2e" and friends must not make a path look like another one.
bool path_is_plain(std::string_view path) {
  if (path.empty() || path[0] != '/') return false;
  std::string decoded;
  for (std::size_t i = 0; i < path.size(); ++i) {
    unsigned char c = static_cast<unsigned char>(path[i]);
    if (c <= 0x20 || c == 0x7f || c == '\\') return false;
    if (c == '%') {
      auto hex = path.substr(i + 1, 2);
      if (hex.size() < 2 || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
        return false;
      c = static_cast<unsigned char>(std::stoi(std::string(hex), nullptr, 16));
      if (c == '/' || c == '\\' || c == 0 || c == '.' || c == '%') return false;
      i += 2;
    }
    decoded += static_cast<char>(c);
  }
  std::string_view rest = decoded;
  while (!rest.empty()) {
    rest.remove_prefix(1);
    std::string_view segment = rest.substr(0, rest.find('/'));
    if (segment == "." || segment == "..") return false;
    rest.remove_prefix(segment.size());
  }
  return true;
}

bool path_matches(std::string_view pattern, std::string_view path) {
  if (pattern.ends_with('*')) return path.starts_with(pattern.substr(0, pattern.size() - 1));
  return path == pattern;
}

}  // namespace

std::string_view to_string(EgressAction action) {
  switch (action) {
    case EgressAction::allow:
      return "allow";
    case EgressAction::deny:
      return "deny";
    case EgressAction::ask:
      return "ask";
  }
  return "deny";
}

std::string_view to_string(RuleOrigin origin) {
  switch (origin) {
    case RuleOrigin::managed_deny:
      return "managed deny";
    case RuleOrigin::managed_allow:
      return "managed allow";
    case RuleOrigin::user_deny:
      return "user deny";
    case RuleOrigin::answer:
      return "answer";
    case RuleOrigin::session:
      return "session";
    case RuleOrigin::kept_answer:
      return "kept answer";
    case RuleOrigin::user_allow:
      return "user allow";
  }
  return "unknown";
}

bool EgressRule::covers(const Destination& destination) const {
  return std::find(ports.begin(), ports.end(), destination.port) != ports.end() &&
         host.matches(destination.host);
}

EgressDecision decide(const EgressPolicy& policy, const Destination& destination, Person person) {
  auto ask_or_deny = [&](EgressDecision decision) {
    if (decision.action == EgressAction::ask && person == Person::absent) {
      decision.action = EgressAction::deny;
      decision.reason += "; nobody is there to answer, so it is denied";
    }
    return decision;
  };
  using enum EgressAction;
  if (!policy.broken.empty())
    return {deny, {}, nullptr, fmt::format("{} is denied: {}", destination.text(), policy.broken)};
  if (auto* rule = find(policy.managed, destination, deny))
    return decided(deny, RuleOrigin::managed_deny, *rule, destination);
  if (auto* rule = find(policy.user, destination, deny))
    return decided(deny, RuleOrigin::user_deny, *rule, destination);
  if (auto* rule = find(policy.kept, destination, deny))
    return decided(deny, RuleOrigin::kept_answer, *rule, destination);
  if (auto* rule = find(policy.answers, destination, deny))
    return decided(deny, RuleOrigin::answer, *rule, destination);
  if (auto* rule = find(policy.session, destination, deny))
    return decided(deny, RuleOrigin::session, *rule, destination);
  const EgressRule* floor_ask = find(policy.managed, destination, ask);
  const EgressRule* floor_allow = find(policy.managed, destination, allow);
  if (policy.managed_floor && !floor_ask && !floor_allow)
    return {
        deny, RuleOrigin::managed_deny, nullptr,
        fmt::format("{} is not among the destinations that the administrator allows", destination.text())};
  // A person who was asked in this session has answered whoever wanted to ask.
  if (auto* rule = find(policy.answers, destination, allow))
    return decided(allow, RuleOrigin::answer, *rule, destination);
  // An administrator's question is put whatever people allowed for themselves, in a file or in words.
  if (floor_ask) return ask_or_deny(decided(ask, RuleOrigin::managed_allow, *floor_ask, destination));
  if (auto* rule = find(policy.session, destination, ask))
    return ask_or_deny(decided(ask, RuleOrigin::session, *rule, destination));
  if (auto* rule = find(policy.session, destination, allow))
    return decided(allow, RuleOrigin::session, *rule, destination);
  if (auto* rule = find(policy.kept, destination, allow))
    return decided(allow, RuleOrigin::kept_answer, *rule, destination);
  if (auto* rule = find(policy.user, destination, ask))
    return ask_or_deny(decided(ask, RuleOrigin::user_allow, *rule, destination));
  if (auto* rule = find(policy.user, destination, allow))
    return decided(allow, RuleOrigin::user_allow, *rule, destination);
  if (floor_allow) return decided(allow, RuleOrigin::managed_allow, *floor_allow, destination);
  EgressDecision decision{policy.unnamed == allow ? deny : policy.unnamed,
                          {},
                          nullptr,
                          fmt::format("no rule names {}", destination.text())};
  return ask_or_deny(std::move(decision));
}

Status judge_addresses(const EgressDecision& decision, const Destination& destination,
                       std::span<const Address> answers, std::span<const Address> own) {
  if (decision.action != EgressAction::allow) return fail(ErrorCode::permission_denied, decision.reason);
  if (answers.empty())
    return fail(ErrorCode::not_found, fmt::format("{} has no address", destination.host.text()));
  for (const Address& address : answers) {
    AddressClass address_class = classify(address);
    bool is_own = std::find(own.begin(), own.end(), address) != own.end();
    if (address_class == AddressClass::global && !is_own) continue;
    // Only a rule that names this very address opens it, and only for a destination that is this address: a
    // name never leads to one.
    bool named =
        decision.rule && decision.rule->names_address_of(address) && destination.host.address() == address;
    if (named) continue;
    return fail(ErrorCode::permission_denied,
                fmt::format("{} leads to {}, a {} address", destination.text(), address.text(),
                            is_own ? "host's own" : to_string(address_class)),
                fmt::format("a rule must name the address {} itself", address.text()));
  }
  return {};
}

bool EgressRule::names_address_of(const Address& address) const {
  return host.names_address() && host.matches(Host::of(address));
}

Status judge_request(const EgressRule& rule, const RequestFacts& request) {
  auto refuse = [&](std::string why) {
    return fail(ErrorCode::permission_denied,
                fmt::format("{} by the rule for {} ({})", std::move(why), rule.host.text(), rule.source));
  };
  if (!rule.methods.empty() &&
      std::find(rule.methods.begin(), rule.methods.end(), request.method) == rule.methods.end())
    return refuse(fmt::format("the method {} is not allowed", request.method));
  if (!rule.paths.empty()) {
    if (!path_is_plain(request.path))
      return refuse("a path with dot segments or encoded separators is not allowed");
    if (std::none_of(rule.paths.begin(), rule.paths.end(),
                     [&](const std::string& pattern) { return path_matches(pattern, request.path); }))
      return refuse("the path is not allowed");
  }
  for (const std::string& name : rule.deny_headers)
    if (std::find(request.header_names.begin(), request.header_names.end(), name) !=
        request.header_names.end())
      return refuse(fmt::format("the header {} is not allowed", name));
  if (rule.max_upload && request.body_size.value_or(0) > rule.max_upload->bytes)
    return refuse(fmt::format("a body of more than {} is not allowed", to_string(*rule.max_upload)));
  return {};
}

}  // namespace anchorhold::policy
