#include "policy/egress_policy.h"

#include <gtest/gtest.h>

namespace anchorhold::policy {
namespace {

using enum EgressAction;

EgressRule rule(std::string_view host, EgressAction action, std::vector<std::uint16_t> ports = {443, 80}) {
  EgressRule made;
  made.host = *HostPattern::parse(host);
  made.action = action;
  made.ports = std::move(ports);
  made.source = "test";
  return made;
}

Destination to(std::string_view text) {
  return *Destination::parse(text, 443);
}
Address address(std::string_view text) {
  return *Host::parse(text)->address();
}

TEST(EgressDecision, EmptyPolicyDeniesEverything) {
  for (auto person : {Person::present, Person::absent}) {
    auto decision = decide({}, to("example.com"), person);
    EXPECT_EQ(decision.action, deny);
    EXPECT_FALSE(decision.reason.empty());
  }
}

TEST(EgressDecision, AnUnnamedDestinationIsNeverSilentlyAllowed) {
  EgressPolicy policy;
  policy.unnamed = allow;
  EXPECT_EQ(decide(policy, to("example.com"), Person::present).action, deny);
}

TEST(EgressDecision, OrderOfOrigins) {
  struct Case {
    const char* what;
    std::vector<EgressRule> managed, user, session;
    bool floor;
    EgressAction unnamed;
    EgressAction with_person, alone;
  };
  const auto name = "example.com";
  for (const auto& c : std::vector<Case>{
           {"user allow", {}, {rule(name, allow)}, {}, false, deny, allow, allow},
           {"session allow", {}, {}, {rule(name, allow)}, false, deny, allow, allow},
           {"managed deny beats all",
            {rule(name, deny)},
            {rule(name, allow)},
            {rule(name, allow)},
            false,
            ask,
            deny,
            deny},
           {"user deny beats session allow",
            {},
            {rule(name, deny)},
            {rule(name, allow)},
            false,
            ask,
            deny,
            deny},
           {"user deny beats managed allow",
            {rule(name, allow)},
            {rule(name, deny)},
            {},
            false,
            ask,
            deny,
            deny},
           {"session deny beats user allow",
            {},
            {rule(name, allow)},
            {rule(name, deny)},
            false,
            ask,
            deny,
            deny},
           {"a later deny beats an earlier allow",
            {},
            {rule(name, allow), rule(name, deny)},
            {},
            false,
            deny,
            deny,
            deny},
           {"user ask beats user allow",
            {},
            {rule(name, allow), rule(name, ask)},
            {},
            false,
            deny,
            ask,
            deny},
           {"session allow answers user ask",
            {},
            {rule(name, ask)},
            {rule(name, allow)},
            false,
            deny,
            allow,
            allow},
           {"managed ask", {rule(name, ask)}, {rule(name, allow)}, {}, false, deny, ask, deny},
           {"managed allow", {rule(name, allow)}, {}, {}, true, deny, allow, allow},
           {"the floor denies what it does not name",
            {rule("other.example", allow)},
            {rule(name, allow)},
            {rule(name, allow)},
            true,
            ask,
            deny,
            deny},
           {"unnamed asks", {}, {rule("other.example", allow)}, {}, false, ask, ask, deny},
           {"another port is another destination",
            {},
            {rule(name, allow, {8443})},
            {},
            false,
            deny,
            deny,
            deny},
       }) {
    EgressPolicy policy{c.managed, c.user, c.session, {}, c.floor, c.unnamed};
    EXPECT_EQ(decide(policy, to(name), Person::present).action, c.with_person) << c.what;
    EXPECT_EQ(decide(policy, to(name), Person::absent).action, c.alone) << c.what;
  }
}

// A rule of the command line is the person's own; only the answer to a prompt settles an administrator's
// question.
TEST(EgressDecision, WhatSettlesAQuestion) {
  enum class Asker { administrator, person, command_line, nobody };
  enum class Word { nothing, configuration_allow, command_line_allow, answer_allow, answer_deny };
  struct Case {
    Asker asker;
    Word word;
    EgressAction with_person, alone;
    std::optional<RuleOrigin> origin;
  };
  const auto name = "example.com";
  for (const auto& c : std::vector<Case>{
           {Asker::administrator, Word::nothing, ask, deny, RuleOrigin::managed_allow},
           {Asker::administrator, Word::configuration_allow, ask, deny, RuleOrigin::managed_allow},
           {Asker::administrator, Word::command_line_allow, ask, deny, RuleOrigin::managed_allow},
           {Asker::administrator, Word::answer_allow, allow, allow, RuleOrigin::answer},
           {Asker::administrator, Word::answer_deny, deny, deny, RuleOrigin::answer},
           {Asker::person, Word::nothing, ask, deny, RuleOrigin::user_allow},
           {Asker::person, Word::configuration_allow, ask, deny, RuleOrigin::user_allow},
           {Asker::person, Word::command_line_allow, allow, allow, RuleOrigin::session},
           {Asker::person, Word::answer_allow, allow, allow, RuleOrigin::answer},
           {Asker::person, Word::answer_deny, deny, deny, RuleOrigin::answer},
           {Asker::command_line, Word::configuration_allow, ask, deny, RuleOrigin::session},
           {Asker::command_line, Word::command_line_allow, ask, deny, RuleOrigin::session},
           {Asker::command_line, Word::answer_allow, allow, allow, RuleOrigin::answer},
           {Asker::nobody, Word::nothing, ask, deny, std::nullopt},
           {Asker::nobody, Word::answer_allow, allow, allow, RuleOrigin::answer},
           {Asker::nobody, Word::answer_deny, deny, deny, RuleOrigin::answer},
       })
    for (bool floor : {false, true}) {
      if (floor && c.asker != Asker::administrator) continue;
      EgressPolicy policy;
      policy.unnamed = ask;
      policy.managed_floor = floor;
      if (c.asker == Asker::administrator) policy.managed.push_back(rule(name, ask));
      if (c.asker == Asker::person) policy.user.push_back(rule(name, ask));
      if (c.asker == Asker::command_line) policy.session.push_back(rule(name, ask));
      if (c.word == Word::configuration_allow) policy.user.push_back(rule(name, allow));
      if (c.word == Word::command_line_allow) policy.session.push_back(rule(name, allow));
      if (c.word == Word::answer_allow) policy.answers.push_back(rule(name, allow));
      if (c.word == Word::answer_deny) policy.answers.push_back(rule(name, deny));
      const std::string what = "asker " + std::to_string(static_cast<int>(c.asker)) + ", word " +
                               std::to_string(static_cast<int>(c.word)) + (floor ? ", floor" : "");
      auto decision = decide(policy, to(name), Person::present);
      EXPECT_EQ(decision.action, c.with_person) << what;
      EXPECT_EQ(decision.origin, c.origin) << what;
      EXPECT_EQ(decide(policy, to(name), Person::absent).action, c.alone) << what;
    }
}

TEST(EgressDecision, AnAnswerCannotUndoADeny) {
  const auto name = "example.com";
  for (auto origin : {RuleOrigin::managed_deny, RuleOrigin::user_deny, RuleOrigin::session}) {
    EgressPolicy policy;
    policy.answers.push_back(rule(name, allow));
    auto& rules = origin == RuleOrigin::managed_deny ? policy.managed
                  : origin == RuleOrigin::user_deny  ? policy.user
                                                     : policy.session;
    rules.push_back(rule(name, deny));
    auto decision = decide(policy, to(name), Person::present);
    EXPECT_EQ(decision.action, deny);
    EXPECT_EQ(decision.origin, origin);
  }
  EgressPolicy policy;
  policy.managed_floor = true;
  policy.answers.push_back(rule(name, allow));
  EXPECT_EQ(decide(policy, to(name), Person::present).action, deny);
}

TEST(EgressDecision, EveryAddressOfTheAnswerIsJudged) {
  EgressPolicy policy;
  policy.user = {rule("example.com", allow), rule("10.1.2.3", allow), rule("10.9.0.0/16", allow),
                 rule("198.51.100.7", deny)};
  std::vector<Address> own{address("93.184.216.34"), address("10.1.2.4")};
  struct Case {
    std::string_view destination;
    std::vector<std::string_view> answers;
    bool allowed;
  };
  for (const auto& c : std::vector<Case>{
           {"example.com", {"8.8.8.8", "[2606:4700::1111]"}, true},
           {"example.com", {}, false},
           {"example.com", {"8.8.8.8", "127.0.0.1"}, false},
           {"example.com", {"169.254.169.254"}, false},
           {"example.com", {"[fd00:ec2::254]"}, false},
           {"example.com", {"10.1.2.3"}, false},  // a rule names the address, but the destination is a name
           {"example.com", {"93.184.216.34"}, false},  // the host's own interface
           {"10.1.2.3", {"10.1.2.3"}, true},
           {"10.9.8.7", {"10.9.8.7"}, true},
           {"10.1.2.5", {"10.1.2.5"}, false},
           {"198.51.100.7", {"198.51.100.7"}, false},
       }) {
    auto destination = to(c.destination);
    auto decision = decide(policy, destination, Person::absent);
    std::vector<Address> answers;
    for (auto text : c.answers) answers.push_back(address(text));
    EXPECT_EQ(judge_addresses(decision, destination, answers, own).has_value(), c.allowed)
        << c.destination << " -> " << (c.answers.empty() ? "nothing" : c.answers.back());
  }
}

TEST(EgressRequest, MethodsPathsHeadersAndSizes) {
  EgressRule r = rule("api.example.com", allow);
  r.methods = {"GET", "HEAD"};
  r.paths = {"/v1/*", "/status"};
  r.deny_headers = {"x-fetch-url"};
  r.max_upload = ByteSize{100};
  EXPECT_TRUE(r.inspecting());
  struct Case {
    RequestFacts request;
    bool allowed;
  };
  for (const auto& c : std::vector<Case>{
           {{"GET", "/v1/items", {"accept"}, {}}, true},
           {{"GET", "/status", {}, {}}, true},
           {{"GET", "/status/more", {}, {}}, false},
           {{"POST", "/v1/items", {}, {}}, false},
           {{"get", "/v1/items", {}, {}}, false},
           {{"GET", "/v2/items", {}, {}}, false},
           {{"GET", "/v1/../v2", {}, {}}, false},
           {{"GET", "/v1/./x", {}, {}}, false},
           {{"GET", "/v1/%2e%2e/v2", {}, {}}, false},
           {{"GET", "/v1/..%2fv2", {}, {}}, false},
           {{"GET", "/v1/%zz", {}, {}}, false},
           {{"GET", "/v1/%", {}, {}}, false},
           {{"GET", "/v1/a%20b", {}, {}}, true},
           {{"GET", "/v1/a\\b", {}, {}}, false},
           {{"GET", "v1/items", {}, {}}, false},
           {{"GET", "", {}, {}}, false},
           {{"GET", "/v1/items", {"x-fetch-url"}, {}}, false},
           {{"GET", "/v1/items", {}, 100}, true},
           {{"GET", "/v1/items", {}, 101}, false},
       })
    EXPECT_EQ(judge_request(r, c.request).has_value(), c.allowed)
        << c.request.method << " " << c.request.path;
  EXPECT_FALSE(rule("example.com", allow).inspecting());
  EXPECT_TRUE(judge_request(rule("example.com", allow), {"POST", "/anything/../x", {}, 1u << 30}));
}

}  // namespace
}  // namespace anchorhold::policy
