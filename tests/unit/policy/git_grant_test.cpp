#include "policy/git_grant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/configuration.h"

namespace anchorhold::policy {
namespace {

using ::testing::HasSubstr;

TEST(GitGrant, ARepositoryHasOneSpelling) {
  const std::pair<std::string, std::string> table[] = {
      {"team/app", "team/app"},
      {"team/app.git", "team/app"},
      {"app.git.git", "app.git"},
      {"team//app", ""},
      {"/team/app", ""},
      {"team/app/", ""},
      {"team/../other", ""},
      {"./app", ""},
      {"", ""},
      {".git", ""},
      {"team/app/.git", ""},
      {"team/.git/hooks", ""},
      {"team/a..b", "team/a..b"},
      {"team/..", ""},
  };
  for (const auto& [path, repository] : table) EXPECT_EQ(canonical_repository(path), repository) << path;
}

TEST(GitGrant, NamesOfRefsAreStrict) {
  for (const char* good : {"refs/heads/main", "refs/heads/agent/fix-1", "refs/tags/v1.0", "refs/stash",
                           "refs/heads/\xc3\xbc", "refs/heads/a@b"})
    EXPECT_TRUE(is_ref_name(good)) << good;
  for (const char* bad : {"",
                          "HEAD",
                          "heads/main",
                          "refs/",
                          "refs",
                          "refs//main",
                          "refs/heads/",
                          "refs/heads/a..b",
                          "refs/heads/.a",
                          "refs/heads/a.lock",
                          "refs/heads/a.lock/b",
                          "refs/heads/a b",
                          "refs/heads/a\n",
                          "refs/heads/a~1",
                          "refs/heads/a^",
                          "refs/heads/a:b",
                          "refs/heads/a?",
                          "refs/heads/*",
                          "refs/heads/[a",
                          "refs/heads/a\\b",
                          "refs/heads/a@{1}",
                          "refs/heads/a.",
                          "refs/heads/a\x7f"})
    EXPECT_FALSE(is_ref_name(bad)) << bad;
}

Result<Configuration> configured(const std::string& git) {
  return parse_configuration(
      "[[egress.rule]]\nhost = \"git.example.com\"\naction = \"allow\"\ngit = " + git + "\n", "config.toml");
}

TEST(GitGrant, ARuleSaysWhatMayBeDoneWithWhichRepository) {
  auto configuration = parse_configuration(R"(
[[egress.rule]]
host = "git.example.com"
action = "allow"
[[egress.rule.git]]
repositories = ["team/*", "tools/lint.git"]
[[egress.rule.git]]
repositories = ["team/app"]
operations = ["fetch", "push"]
refs = ["refs/heads/agent/*"]
push_options = ["ci.*"]
[[egress.rule.git]]
repositories = ["team/pages"]
operations = ["push", "delete", "lfs"]
refs = ["refs/heads/preview/*", "refs/tags/latest"]
)",
                                           "config.toml");
  ASSERT_TRUE(configuration) << configuration.error().message;
  const EgressRule& rule = configuration->egress.rules.at(0);
  EXPECT_TRUE(rule.inspecting());
  using enum GitOperation;
  struct Case {
    const char* repository;
    GitOperation operation;
    bool allowed;
  };
  for (const auto& c : std::vector<Case>{{"team/app", fetch, true},
                                         {"team/app", push, true},
                                         {"team/other", fetch, true},
                                         {"team/other", push, false},
                                         {"tools/lint", fetch, true},
                                         {"tools/lint2", fetch, false},
                                         {"Team/app", fetch, false},
                                         {"teams/app", fetch, false},
                                         {"team", fetch, false},
                                         {"team/pages", push, true},
                                         {"team/pages", deletes, true},
                                         {"team/app", deletes, false},
                                         {"team/pages", lfs, true},
                                         {"team/app", lfs, false},
                                         {"team/sub/app", fetch, true},
                                         {"team/application", push, false}})
    EXPECT_EQ(git_allows(rule.git, c.repository, c.operation), c.allowed)
        << c.repository << " " << to_string(c.operation);
  EXPECT_TRUE(git_allows_ref(rule.git, "team/app", push, "refs/heads/agent/fix"));
  EXPECT_FALSE(git_allows_ref(rule.git, "team/app", push, "refs/heads/agent"));
  EXPECT_FALSE(git_allows_ref(rule.git, "team/app", push, "refs/heads/main"));
  EXPECT_FALSE(git_allows_ref(rule.git, "team/app", push, "refs/heads/preview/x")) << "another grant's ref";
  EXPECT_FALSE(git_allows_ref(rule.git, "team/app", deletes, "refs/heads/agent/fix"));
  EXPECT_TRUE(git_allows_ref(rule.git, "team/pages", deletes, "refs/tags/latest"));
  EXPECT_FALSE(git_allows_ref(rule.git, "team/pages", push, "refs/tags/latest2"));
  EXPECT_TRUE(git_allows_option(rule.git, "team/app", "ci.skip"));
  EXPECT_FALSE(git_allows_option(rule.git, "team/pages", "ci.skip"));
  EXPECT_EQ(git_refs_of(rule.git, "team/pages"), "refs/heads/preview/*, refs/tags/latest");
}

TEST(GitGrant, OneGrantNeedsNoList) {
  auto configuration = configured(R"({ repositories = ["*"] })");
  ASSERT_TRUE(configuration) << configuration.error().message;
  const auto& grants = configuration->egress.rules.at(0).git;
  EXPECT_TRUE(git_allows(grants, "any/thing", GitOperation::fetch));
  EXPECT_FALSE(git_allows(grants, "any/thing", GitOperation::push));
}

TEST(GitGrant, WhatIsNoGrantIsRefusedWithWhatIsAllowed) {
  const std::pair<std::string, std::string> table[] = {
      {"true", "must be a table"},
      {"[]", "must be a table"},
      {"{}", "a table with repositories"},
      {"{ repositories = [] }", "at least one"},
      {"{ repositories = [\"/team/app\"] }", "without a slash before"},
      {"{ repositories = [\"team/*/app\"] }", "without a slash before"},
      {"{ repositories = [\"team/../app\"] }", "without a slash before"},
      {"{ repositories = [\"a\"], operations = [\"clone\"] }", "\"fetch\", \"push\", \"delete\" and \"lfs\""},
      {"{ repositories = [\"a\"], operations = [\"push\"] }", "names the refs of its pushes"},
      {"{ repositories = [\"a\"], operations = [\"fetch\", \"delete\"] }", "with \"push\" among"},
      {"{ repositories = [\"a\"], refs = [\"refs/heads/x\"] }", "with \"push\" among"},
      {"{ repositories = [\"a\"], operations = [\"push\"], refs = [\"main\"] }", "whole names of refs"},
      {"{ repositories = [\"a\"], operations = [\"push\"], refs = [\"refs/*/x\"] }", "whole names of refs"},
      {"{ repositories = [\"a\"], branches = [\"x\"] }", "unknown key 'branches' in git"},
  };
  for (const auto& [git, reason] : table) {
    auto configuration = configured(git);
    ASSERT_FALSE(configuration) << git;
    EXPECT_THAT(configuration.error().message, HasSubstr(reason)) << git;
    EXPECT_THAT(configuration.error().message, HasSubstr("config.toml:4: ")) << git;
  }
  auto denied = parse_configuration(
      "[[egress.rule]]\nhost = \"a.example\"\naction = \"deny\"\ngit = { repositories = [\"a\"] }\n", "c");
  ASSERT_FALSE(denied);
  EXPECT_THAT(denied.error().message, HasSubstr("a deny rule denies everything"));
}

}  // namespace
}  // namespace anchorhold::policy
