// What the model is told that a session reaches.
#include "session/web_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/configuration.h"

namespace anchorhold::session {
namespace {

using policy::EgressAction;
using policy::Person;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

policy::EgressRule rule(const std::string& text, EgressAction action) {
  auto parsed = policy::parse_rule_argument(text, action);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : policy::EgressRule{};
}

TEST(NetworkReach, NothingWhenNothingIsAllowed) {
  policy::EgressPolicy rules;
  for (auto person : {Person::present, Person::absent}) {
    auto reach = reach_of(rules, person);
    EXPECT_THAT(reach.hosts, IsEmpty());
    EXPECT_FALSE(reach.asks);
  }
  // Whom nobody can be asked about is not reached.
  rules.unnamed = EgressAction::ask;
  EXPECT_TRUE(reach_of(rules, Person::present).asks);
  EXPECT_FALSE(reach_of(rules, Person::absent).asks);
  rules.managed_floor = true;
  EXPECT_FALSE(reach_of(rules, Person::present).asks);
}

TEST(NetworkReach, RulesOfEveryOriginAndOnlyThoseThatCount) {
  policy::EgressPolicy rules;
  rules.session = {rule("pypi.org", EgressAction::allow), rule("*.example.org:8443", EgressAction::allow),
                   rule("never.example.com", EgressAction::allow), rule("192.0.2.7:80", EgressAction::allow)};
  rules.user = {rule("never.example.com", EgressAction::deny),
                rule("api.example.com:443", EgressAction::allow), rule("pypi.org:443", EgressAction::allow)};
  rules.user[1].methods = {"GET"};
  rules.answers = {rule("asked.example.net:443", EgressAction::allow)};
  auto reach = reach_of(rules, Person::absent);
  std::vector<std::string> pypi;
  for (auto port : rules.session[0].ports) pypi.push_back("pypi.org:" + std::to_string(port));
  ASSERT_FALSE(pypi.empty());
  std::vector<std::string> all{"asked.example.net:443"};
  all.insert(all.end(), pypi.begin(), pypi.end());
  all.insert(all.end(), {"*.example.org:8443", "192.0.2.7:80", "api.example.com:443 (method GET)"});
  EXPECT_EQ(reach.hosts, all);
  EXPECT_FALSE(reach.asks);
  rules.user.push_back(rule("maybe.example.com", EgressAction::ask));
  EXPECT_TRUE(reach_of(rules, Person::present).asks);
  EXPECT_EQ(reach_of(rules, Person::present).hosts, all);
  // Rules that cannot be read deny everything.
  rules.broken = "config.toml:3 is not understood";
  EXPECT_THAT(reach_of(rules, Person::present).hosts, IsEmpty());
  EXPECT_FALSE(reach_of(rules, Person::present).asks);
}

TEST(NetworkReach, AnAdministratorsListIsAFloor) {
  policy::EgressPolicy rules;
  rules.managed_floor = true;
  rules.managed = {rule("allowed.example.com:443", EgressAction::allow)};
  rules.session = {rule("other.example.com:443", EgressAction::allow)};
  EXPECT_THAT(reach_of(rules, Person::present).hosts, ElementsAre("allowed.example.com:443"));
}

TEST(NetworkReach, AreNotListedWithoutEnd) {
  policy::EgressPolicy rules;
  for (int i = 0; i < 100; ++i)
    rules.session.push_back(rule("h" + std::to_string(i) + ".example.com:443", EgressAction::allow));
  auto reach = reach_of(rules, Person::absent);
  EXPECT_THAT(reach.hosts, SizeIs(40));
  EXPECT_EQ(reach.more, 60u);
}

}  // namespace
}  // namespace anchorhold::session
