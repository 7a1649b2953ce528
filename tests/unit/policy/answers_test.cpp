#include "policy/answers.h"

#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"
#include "policy/person_rules.h"

namespace anchorhold::policy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

EgressRule answer(const std::string& host, std::uint16_t port = 443,
                  EgressAction action = EgressAction::allow) {
  EgressRule rule;
  rule.host = *HostPattern::parse(host);
  rule.ports = {port};
  rule.action = action;
  return rule;
}

std::vector<std::string> described(const std::vector<EgressRule>& rules) {
  std::vector<std::string> all;
  for (const auto& rule : rules)
    all.push_back(std::string(to_string(rule.action)) + " " + rule.host.text() + ":" +
                  std::to_string(rule.ports.at(0)));
  return all;
}

TEST(Answers, ARuleComesBackAsItWas) {
  EgressRule rule = answer("api.example.com", 8443);
  rule.methods = {"GET", "M-SEARCH"};
  rule.paths = {"/v1/\"x\"*", "/\xc3\xa9"};
  rule.credential = "back\\slash \"and\" \x01";
  rule.deny_headers = {"x-fetch-url"};
  rule.deny_json_fields = {"image url", "a\"b"};
  rule.max_upload = ByteSize{12345};
  GitGrant grant;
  grant.repositories = {"team/app", "team/*"};
  grant.operations = {GitOperation::fetch, GitOperation::push};
  grant.refs = {"refs/heads/agent/*"};
  grant.push_options = {"ci.skip"};
  rule.git = {grant, grant};
  auto parsed = parse_answers(to_toml(rule));
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->size(), 1u);
  const auto& back = parsed->front();
  EXPECT_EQ(back.host, rule.host);
  EXPECT_EQ(back.ports, rule.ports);
  EXPECT_EQ(back.action, rule.action);
  EXPECT_EQ(back.methods, rule.methods);
  EXPECT_EQ(back.paths, rule.paths);
  EXPECT_EQ(back.credential, rule.credential);
  EXPECT_EQ(back.deny_headers, rule.deny_headers);
  EXPECT_EQ(back.deny_json_fields, rule.deny_json_fields);
  EXPECT_EQ(back.max_upload, rule.max_upload);
  ASSERT_EQ(back.git.size(), 2u);
  EXPECT_EQ(back.git[1].repositories, grant.repositories);
  EXPECT_EQ(back.git[1].operations, grant.operations);
  EXPECT_EQ(back.git[1].refs, grant.refs);
  EXPECT_EQ(back.git[1].push_options, grant.push_options);
  EgressRule hidden = answer("[2001:db8::1]", 22);
  hidden.tunnel_only = true;
  EXPECT_TRUE(parse_answers(to_toml(hidden))->front().tunnel_only);
}

TEST(Answers, TheLaterAnswerTakesThePlaceOfTheEarlier) {
  std::string text = *with_answer("", answer("a.example"), "2026-11-29 session one: always\nhost = \"x\"");
  text = *with_answer(text, answer("b.example", 80), "session two: always");
  text = *with_answer(text, answer("a.example", 443, EgressAction::deny), "session three: never");
  auto rules = parse_answers(text);
  ASSERT_TRUE(rules) << rules.error().message;
  EXPECT_EQ(described(*rules), (std::vector<std::string>{"allow b.example:80", "deny a.example:443"}));
  EXPECT_THAT(text, HasSubstr("# session three: never\n[[egress.rule]]"));
  EXPECT_THAT(text, Not(HasSubstr("session one")));
  EXPECT_THAT(text, HasSubstr("Anchorhold writes this file"));
  EXPECT_EQ(rules->at(0).source.substr(0, 13), "answers.toml:");
}

TEST(Answers, ForgettingTakesOutWhatIsNamedAndNothingElse) {
  std::string text;
  for (const auto& rule : {answer("a.example"), answer("a.example", 80), answer("b.example"),
                           answer("[2001:db8::1]", 22), answer("xn--bcher-kva.example")})
    text = *with_answer(text, rule, "about " + rule.host.text() + " " + std::to_string(rule.ports[0]));
  struct Case {
    std::string which;
    std::size_t left;
    std::string gone, stays;
  };
  for (const auto& c :
       std::vector<Case>{{"a.example", 3, "about a.example", "about b.example 443"},
                         {"A.example.:80", 4, "about a.example 80", "about a.example 443"},
                         {"[2001:db8::1]:22", 4, "2001", "about b.example"},
                         {"2001:DB8::1", 4, "2001", "about xn--"},
                         {"b\xc3\xbc"
                          "cher.example",
                          4, "xn--", "2001"},
                         {parse_answers(text)->at(2).source, 4, "b.example", "about a.example 80"}}) {
    auto forgotten = without_answers(text, c.which);
    ASSERT_TRUE(forgotten) << c.which << ": " << forgotten.error().message;
    EXPECT_EQ(parse_answers(forgotten->text)->size(), c.left) << c.which;
    EXPECT_EQ(forgotten->rules.size(), 5 - c.left);
    EXPECT_THAT(forgotten->text, Not(HasSubstr(c.gone))) << c.which;
    EXPECT_THAT(forgotten->text, HasSubstr(c.stays)) << c.which;
  }
  for (const char* which :
       {"c.example", "b.example:80", "*.example", "", "answers.toml:999", "no host at all"})
    EXPECT_EQ(without_answers(text, which).error().code, ErrorCode::not_found) << which;
}

TEST(Answers, WhatAPersonWroteByHandIsKeptOrLeftAlone) {
  const std::string by_hand =
      "# my note\n\n[egress]\n# about one\n[[egress.rule]]\n  host = \"a.example\"\n  action = \"allow\"\n"
      "# about two\n[[egress.rule]]\nhost = \"b.example\"\naction = \"deny\"\n# the end\n";
  auto forgotten = without_answers(by_hand, "a.example");
  ASSERT_TRUE(forgotten) << forgotten.error().message;
  EXPECT_EQ(forgotten->text,
            "# my note\n\n[egress]\n# about two\n[[egress.rule]]\nhost = \"b.example\"\naction = \"deny\"\n# "
            "the end\n");
  // Two rules in one line cannot be told apart by lines.
  const std::string inlined =
      "egress = { rule = [{ host = \"a.example\", action = \"allow\" }, { host = \"b.example\", action = "
      "\"deny\" }] }\n";
  ASSERT_EQ(parse_answers(inlined)->size(), 2u);
  EXPECT_EQ(without_answers(inlined, "a.example").error().code, ErrorCode::failed_precondition);
  for (const char* text : {"[egress]\ndefault = \"deny\"\n", "[egress]\nask_timeout = \"5s\"\n",
                           "[egress]\nextra_ca = [\"/x\"]\n", "[[egress.rule]]\n"})
    EXPECT_FALSE(parse_answers(text)) << text;
}

class PersonRulesTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name) << text;
  }
  TemporaryDirectory folder_ = *TemporaryDirectory::create();
  const std::filesystem::path& path() const { return folder_.path(); }
};

TEST_F(PersonRulesTest, BothFilesWholeOrNothing) {
  auto none = read_person_rules(path());
  ASSERT_TRUE(none);
  EXPECT_EQ(none->configured.unnamed, EgressAction::ask);
  write("config.toml",
        "[egress]\ndefault = \"deny\"\n[[egress.rule]]\nhost = \"a.example\"\naction = \"ask\"\n");
  ASSERT_TRUE(keep_answer(path(), answer("a.example"), "session s: always"));
  auto rules = read_person_rules(path());
  ASSERT_TRUE(rules) << rules.error().message;
  EgressPolicy policy;
  policy.broken = "not known";
  apply(*rules, policy);
  auto decision = decide(policy, *Destination::parse("a.example:443", {}), Person::absent);
  EXPECT_EQ(decision.action, EgressAction::allow) << "a kept answer settles what the person's own rule asks";
  EXPECT_EQ(decision.origin, RuleOrigin::kept_answer);
  ASSERT_TRUE(forget_answers(path(), "a.example"));
  EXPECT_TRUE(read_person_rules(path())->kept.empty());
  write("answers.toml", "[[egress.rule]]\nhost = \"b.example\"\n");
  EXPECT_THAT(read_person_rules(path()).error().message, HasSubstr("answers.toml:1"));
  EXPECT_FALSE(keep_answer(path(), answer("c.example"), "x")) << "a broken file is not made worse";
}

TEST_F(PersonRulesTest, AFileThatIsNoneOrTooLargeIsRefused) {
  std::filesystem::create_directory(path() / "config.toml");
  EXPECT_FALSE(read_person_rules(path()));
  std::filesystem::remove(path() / "config.toml");
  write("config.toml", std::string(max_configuration_bytes + 1, '#'));
  EXPECT_FALSE(read_person_rules(path()));
}

TEST_F(PersonRulesTest, ALinkThatLeadsNowhereIsNoEmptyFile) {
  std::filesystem::create_symlink(path() / "elsewhere.toml", path() / "config.toml");
  EXPECT_FALSE(read_person_rules(path()));
  std::filesystem::create_symlink(path() / "kept.toml", path() / "answers.toml");
  write("kept.toml", "");
  write("elsewhere.toml", "");
  EXPECT_TRUE(read_person_rules(path()));
  ASSERT_TRUE(keep_answer(path(), answer("a.example"), "x"));
  EXPECT_TRUE(std::filesystem::is_symlink(path() / "answers.toml"));
  EXPECT_EQ(read_person_rules(path())->kept.size(), 1u);
}

TEST_F(PersonRulesTest, WhatIsBeingWrittenIsNotRead) {
  write("config.toml", "");
  UniqueFd writer(open((path() / "config.toml").c_str(), O_WRONLY));
  ASSERT_TRUE(writer);
  auto rules = read_person_rules(path());
  ASSERT_FALSE(rules);
  EXPECT_EQ(rules.error().code, ErrorCode::unavailable);
  std::thread later([&] { writer.reset(); });
  EXPECT_TRUE(load_person_rules(path()));
  later.join();
}

// Answers of many sessions at once.
TEST_F(PersonRulesTest, NoAnswerIsLost) {
  std::vector<std::thread> sessions;
  for (int i = 0; i < 8; ++i)
    sessions.emplace_back([&, i] {
      for (int j = 0; j < 4; ++j)
        EXPECT_TRUE(keep_answer(path(), answer("h" + std::to_string(i * 4 + j) + ".example"), "x"));
    });
  for (auto& session : sessions) session.join();
  EXPECT_EQ(read_person_rules(path())->kept.size(), 32u);
}

}  // namespace
}  // namespace anchorhold::policy
