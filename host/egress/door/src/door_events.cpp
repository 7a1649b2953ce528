#include "door_events.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>

namespace anchorhold::egress {
namespace {

const events::EventName& name_of(EventKind kind) {
  switch (kind) {
    case EventKind::allow:
      return events::egress_allow;
    case EventKind::deny:
      return events::egress_deny;
    case EventKind::credential_use:
      return events::credential_use;
    case EventKind::credential_reject:
      return events::credential_reject;
  }
  return events::egress_deny;
}

void set_destination(events::Event& event, const policy::Destination& destination) {
  event.set("egress.host", destination.host.text()).set("egress.port", int{destination.port});
}

std::string time_of_day() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:02}:{:02}", local.tm_hour, local.tm_min);
}

}  // namespace

events::Event event_of(const EventReport& report) {
  events::Event event(name_of(report.kind));
  auto set = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) event.set(key, value);
  };
  set("egress.host", report.host);
  if (report.port != 0) event.set("egress.port", int{report.port});
  set(events::key::cause, report.cause);
  set("egress.rule", report.rule);
  set("egress.origin", report.origin);
  set("egress.address", report.address);
  set("egress.method", report.method);
  if (!report.path.empty()) event.set_content(events::ContentCategory::paths, "egress.path", report.path);
  set("credential.name", report.credential);
  set("git.operation", report.git_operation);
  set("git.repository", report.git_repository);
  set("git.refs", report.git_refs);
  if (report.cut) event.set("egress.cut", true);
  if (report.violation) {
    event.set("egress.violation", true);
    event.set_severity(events::Severity::error);
  }
  return event;
}

events::Event event_of_question(const Question& question) {
  events::Event event(events::egress_ask);
  set_destination(event, question.destination);
  event.set("egress.question", static_cast<std::int64_t>(question.id));
  event.set(events::key::cause, question.reason);
  if (!question.method.empty()) event.set("egress.method", question.method);
  if (!question.path.empty()) event.set_content(events::ContentCategory::paths, "egress.path", question.path);
  return event;
}

events::Event event_of_answer(const Question& question, Answer answer) {
  events::Event event(events::egress_answer);
  if (question.destination.port != 0) set_destination(event, question.destination);
  event.set("egress.question", static_cast<std::int64_t>(question.id));
  event.set("egress.answer", to_string(answer));
  return event;
}

events::Event event_of_policy(const DoorPolicy& policy) {
  auto count = [](const std::vector<policy::EgressRule>& rules) {
    return static_cast<std::int64_t>(rules.size());
  };
  return events::Event(events::policy_load)
      .set("egress.rules.managed", count(policy.rules.managed))
      .set("egress.rules.user", count(policy.rules.user))
      .set("egress.rules.session", count(policy.rules.session))
      .set("egress.rules.kept", count(policy.rules.kept))
      .set("egress.broken", !policy.rules.broken.empty())
      .set("egress.default", policy::to_string(policy.rules.unnamed))
      .set("egress.person", policy.person == policy::Person::present);
}

policy::EgressRule rule_of_answer(const policy::Destination& destination, Answer answer,
                                  const policy::EgressRule* asking) {
  policy::EgressRule rule;
  if (asking && answer != Answer::never) rule = *asking;
  // A canonical host is a pattern that matches it and nothing else.
  std::string text =
      destination.host.address() ? destination.host.address()->text() : destination.host.text();
  auto pattern = policy::HostPattern::parse(destination.host.text());
  if (!pattern) pattern = policy::HostPattern::parse(text);
  if (pattern) rule.host = std::move(*pattern);
  rule.ports = {destination.port};
  rule.action = answer == Answer::never ? policy::EgressAction::deny : policy::EgressAction::allow;
  rule.source = fmt::format("answered {}", time_of_day());
  return rule;
}

bool names_credential(const DoorPolicy& policy, const policy::Destination& destination,
                      std::string_view credential, bool once) {
  if (credential.empty() || !policy.credentials.contains(std::string(credential))) return false;
  auto decision = policy::decide(policy.rules, destination, policy.person);
  bool allowed = decision.action == policy::EgressAction::allow ||
                 (once && decision.action == policy::EgressAction::ask);
  return allowed && decision.rule && decision.rule->credential == credential;
}

}  // namespace anchorhold::egress
