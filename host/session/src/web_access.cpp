#include "session/web_access.h"

#include <algorithm>
#include <fmt/format.h>

#include "policy/explain.h"

namespace anchorhold::session {
namespace {

constexpr std::size_t most_hosts = 40;

// Whether the rule, were it the first to be asked, still counts for what it names. A pattern cannot be asked
// for every name below it; it stands as it is.
bool counts(const policy::EgressPolicy& rules, const policy::EgressRule& rule, std::uint16_t port,
            policy::Person person) {
  auto host = policy::Host::parse(rule.host.text());
  return !host || policy::decide(rules, {*host, port}, person).action == policy::EgressAction::allow;
}

}  // namespace

agent::NetworkReach reach_of(const policy::EgressPolicy& rules, policy::Person person) {
  using policy::EgressAction;
  agent::NetworkReach reach;
  if (!rules.broken.empty()) return reach;
  const bool attended = person == policy::Person::present;
  reach.asks = attended && rules.unnamed == EgressAction::ask && !rules.managed_floor;
  for (const auto* list : {&rules.answers, &rules.session, &rules.kept, &rules.user, &rules.managed})
    for (const auto& rule : *list) {
      if (rule.action == EgressAction::ask) reach.asks |= attended;
      if (rule.action != EgressAction::allow) continue;
      for (std::uint16_t port : rule.ports) {
        if (!counts(rules, rule, port, person)) continue;
        auto text = fmt::format("{}:{}", rule.host.text(), port);
        if (auto demands = policy::demands_of(rule); !demands.empty()) text += fmt::format(" ({})", demands);
        if (std::find(reach.hosts.begin(), reach.hosts.end(), text) != reach.hosts.end()) continue;
        if (reach.hosts.size() < most_hosts)
          reach.hosts.push_back(std::move(text));
        else
          ++reach.more;
      }
    }
  return reach;
}

agent::NetworkReach SessionWeb::reach() const {
  auto policy = session_.egress_policy();
  return policy ? reach_of(policy->rules, policy->person) : agent::NetworkReach{};
}

Result<agent::WebPage> SessionWeb::fetch(const std::string& url, std::stop_token stop) {
  auto page = ANCHORHOLD_TRY(session_.fetch(url, std::move(stop)));
  return agent::WebPage{.url = std::move(page.url),
                        .status = page.status,
                        .type = std::move(page.type),
                        .title = std::move(page.title),
                        .text = std::move(page.text),
                        .shortened = page.shortened};
}

}  // namespace anchorhold::session
