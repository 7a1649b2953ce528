#include "policy/explain.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::policy {
namespace {

constexpr std::uint16_t https_port = 443, http_port = 80;

std::string joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Of a request of which only the one or the other is known, only that is judged.
Status judge_what_is_said(EgressRule rule, const ExplainQuery& query) {
  if (query.method.empty()) rule.methods.clear();
  if (query.path.empty()) rule.paths.clear();
  RequestFacts facts;
  facts.method = query.method;
  facts.path = query.path.substr(0, query.path.find('?'));
  return judge_request(rule, facts);
}

std::string passage_in_words(const Explanation& e) {
  const auto& destination = *e.destination;
  const auto* rule = e.decision.rule;
  const bool plain = destination.port == http_port;
  switch (*e.passage) {
    case Passage::opened:
      return fmt::format("Connections are opened and each request is judged: {}.", demands_of(*rule));
    case Passage::never_opened:
      return fmt::format(
          "Connections are passed through and never opened; if they are TLS and name a server, it "
          "must be {}.",
          destination.host.text());
    case Passage::tunnelled:
      break;
  }
  if (plain)
    return fmt::format("Requests are plain HTTP; each must be for {} itself.", destination.host.text());
  if (destination.port == https_port)
    return fmt::format("Connections are passed through unread; their TLS must be for {}.",
                       destination.host.text());
  return fmt::format("Connections are passed through unread; they must be TLS for {}, or HTTP.",
                     destination.host.text());
}

}  // namespace

std::string_view to_string(Passage passage) {
  switch (passage) {
    case Passage::tunnelled:
      return "tunnelled";
    case Passage::opened:
      return "opened";
    case Passage::never_opened:
      return "never opened";
  }
  return "unknown";
}

std::string demands_of(const EgressRule& rule) {
  std::vector<std::string> demands;
  if (!rule.methods.empty())
    demands.push_back("method " + fmt::format("{}", fmt::join(rule.methods, " or ")));
  if (!rule.paths.empty()) demands.push_back("path " + fmt::format("{}", fmt::join(rule.paths, " or ")));
  if (!rule.credential.empty()) demands.push_back("credential " + rule.credential);
  if (!rule.deny_headers.empty()) demands.push_back("no header " + joined(rule.deny_headers));
  if (!rule.deny_json_fields.empty())
    demands.push_back("no field " + joined(rule.deny_json_fields) + " in JSON");
  if (!rule.git.empty()) {
    std::vector<std::string> repositories;
    for (const auto& grant : rule.git)
      repositories.insert(repositories.end(), grant.repositories.begin(), grant.repositories.end());
    demands.push_back("Git on " + joined(repositories) + " and nothing else");
  }
  if (rule.max_upload) demands.push_back("a body of at most " + to_string(*rule.max_upload));
  return joined(demands);
}

EgressAction Explanation::verdict() const {
  if (!destination || (request && !*request)) return EgressAction::deny;
  return decision.action;
}

Explanation explain(const EgressPolicy& policy, const ExplainQuery& query) {
  Explanation e;
  auto destination = Destination::parse(query.target, https_port);
  if (!destination) {
    e.decision.reason = destination.error().message;
    e.alone = e.decision;
    return e;
  }
  e.destination = std::move(*destination);
  e.decision = decide(policy, *e.destination, Person::present);
  e.alone = decide(policy, *e.destination, Person::absent);
  if (e.decision.action == EgressAction::deny) return e;
  const auto* rule = e.decision.rule;
  e.passage = rule && rule->inspecting()  ? Passage::opened
              : rule && rule->tunnel_only ? Passage::never_opened
                                          : Passage::tunnelled;
  if (rule && rule->inspecting() && (!query.method.empty() || !query.path.empty()))
    e.request = judge_what_is_said(*rule, query);
  return e;
}

std::vector<std::string> in_words(const Explanation& e, const ExplainQuery& query) {
  if (!e.destination)
    return {fmt::format("'{}' is refused, whatever the rules say: {}.", query.target, e.decision.reason)};
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} is understood as {}.", query.target, e.destination->text()));
  const auto class_of_address = [&]() -> std::string {
    if (!e.destination->host.address()) return {};
    auto kind = classify(*e.destination->host.address());
    return kind == AddressClass::global ? "" : fmt::format("It is a {} address. ", to_string(kind));
  }();
  if (!class_of_address.empty())
    lines.back() += " " + class_of_address.substr(0, class_of_address.size() - 1);
  switch (e.decision.action) {
    case EgressAction::allow:
      lines.push_back(fmt::format("Allowed: {}.", e.decision.reason));
      break;
    case EgressAction::ask:
      lines.push_back(fmt::format("Asked about: {}. With nobody to answer it is denied.", e.decision.reason));
      break;
    case EgressAction::deny:
      lines.push_back(fmt::format("Denied: {}.", e.decision.reason));
      return lines;
  }
  if (const auto* rule = e.decision.rule; rule && rule->ports.size() > 1) {
    std::vector<std::string> ports;
    for (auto port : rule->ports) ports.push_back(std::to_string(port));
    lines.push_back(fmt::format("The rule is for the ports {}.", joined(ports)));
  }
  lines.push_back(passage_in_words(e));
  if (!e.request) {
    if (!query.method.empty() || !query.path.empty())
      lines.push_back("Method and path do not matter: no rule looks at them.");
  } else if (*e.request) {
    lines.push_back(fmt::format("A request {}{}{} satisfies the rule in that.", query.method,
                                query.method.empty() || query.path.empty() ? "" : " ", query.path));
  } else {
    lines.push_back(fmt::format("The request is denied: {}.", e.request->error().message));
  }
  return lines;
}

}  // namespace anchorhold::policy
