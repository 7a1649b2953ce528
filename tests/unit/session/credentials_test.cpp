#include "session/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "egress/sigv4.h"

namespace anchorhold::session {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr std::string_view token = "the-token-of-the-session";

policy::EgressRule rule(const std::string& host, const std::string& credential,
                        policy::EgressAction action = policy::EgressAction::allow) {
  policy::EgressRule made;
  made.host = *policy::HostPattern::parse(host);
  made.action = action;
  made.credential = credential;
  made.source = "config.toml:7";
  return made;
}

CredentialUse use(vault::Kind kind, std::vector<std::string> hosts, std::vector<std::string> variables = {}) {
  CredentialUse made;
  made.credential.name = "example";
  made.credential.kind = kind;
  made.credential.variables = std::move(variables);
  if (kind == vault::Kind::git) made.credential.user = "x-access-token";
  for (const auto& host : hosts) made.rules.push_back(rule(host, "example"));
  return made;
}

std::vector<std::string> names(const std::vector<CredentialUse>& uses) {
  std::vector<std::string> found;
  for (const auto& [name, value] : token_variables(uses, token)) found.push_back(name);
  return found;
}

TEST(SessionCredentials, TheTokenStandsWhereProgramsLookForTheCredential) {
  using enum vault::Kind;
  EXPECT_TRUE(token_variables({}, token).empty());
  EXPECT_THAT(names({use(bearer, {"api.openai.com"})}),
              UnorderedElementsAre("ANCHORHOLD_TOKEN", "OPENAI_API_KEY"));
  EXPECT_THAT(names({use(header, {"api.anthropic.com"})}),
              UnorderedElementsAre("ANCHORHOLD_TOKEN", "ANTHROPIC_API_KEY"));
  EXPECT_THAT(names({use(bearer, {"api.github.com"}), use(bearer, {"registry.npmjs.org"})}),
              UnorderedElementsAre("ANCHORHOLD_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN"));
  EXPECT_THAT(names({use(bearer, {"*.gitlab.com"})}),
              UnorderedElementsAre("ANCHORHOLD_TOKEN", "GITLAB_TOKEN"));
  EXPECT_THAT(names({use(bearer, {"evil-github.com", "github.com.example.com"})}),
              UnorderedElementsAre("ANCHORHOLD_TOKEN"));
  EXPECT_THAT(names({use(bearer, {"api.github.com"}, {"MY_KEY"})}),
              UnorderedElementsAre("ANCHORHOLD_TOKEN", "MY_KEY"));
  EXPECT_THAT(names({use(aws_sigv4, {"*.amazonaws.com"})}),
              UnorderedElementsAre("ANCHORHOLD_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"));
  for (const auto& [name, value] : token_variables({use(bearer, {"api.github.com"})}, token))
    EXPECT_EQ(value, token) << name;
}

TEST(SessionCredentials, GitSendsTheTokenWithoutBeingAsked) {
  auto variables = token_variables({use(vault::Kind::git, {"github.com", "*.example.com"})}, token);
  EXPECT_EQ(variables.at("GIT_CONFIG_COUNT"), "2");
  EXPECT_EQ(variables.at("GIT_CONFIG_KEY_0"), "http.https://github.com/.extraHeader");
  EXPECT_EQ(variables.at("GIT_CONFIG_VALUE_0"),
            "Authorization: " + egress::field_with_secret(
                                    {egress::CredentialForm::Kind::basic, {}, "x-access-token"}, token));
  EXPECT_EQ(variables.at("GIT_CONFIG_KEY_1"), "http.https://*.example.com/.extraHeader");
}

TEST(SessionCredentials, AKeyOfAwsIsForTodayAndForWhatTheCredentialSays) {
  vault::Credential credential;
  credential.kind = vault::Kind::aws_sigv4;
  credential.user = "AKIDEXAMPLE";
  credential.region = "eu-central-1";
  const Secret secret = Secret::of("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\nsession-token-of-aws");
  const std::chrono::system_clock::time_point now(std::chrono::seconds(1440938160));  // 2015-08-30 12:36
  egress::SecretRequest request{.id = 1, .credential = "aws", .destination = {}, .method = {}, .path = {}};
  auto ask = [&](const std::string& scope, std::chrono::seconds later = {}) {
    request.scope = scope;
    return material_for(credential, secret, request, now + later);
  };
  auto given = ask("20150830/eu-central-1/s3/aws4_request");
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_THAT(*given, testing::Not(HasSubstr("wJalr")));
  auto key = egress::parse_sigv4_key(*given);
  ASSERT_TRUE(key);
  EXPECT_EQ(key->access_key_id, "AKIDEXAMPLE");
  EXPECT_EQ(key->session_token, "session-token-of-aws");
  EXPECT_TRUE(
      ask("20150830/eu-central-1/s3/aws4_request", std::chrono::hours(11) + std::chrono::minutes(26)));
  for (const char* scope :
       {"20150829/eu-central-1/s3/aws4_request", "20150831/eu-central-1/s3/aws4_request",
        "20990101/eu-central-1/s3/aws4_request", "20150830/us-east-1/s3/aws4_request", "", "x"})
    EXPECT_FALSE(ask(scope)) << scope;
  credential.service = "s3";
  EXPECT_FALSE(ask("20150830/eu-central-1/dynamodb/aws4_request"));
  // Nor is the secret of another kind given out for a scope, or the secret access key without one.
  credential.kind = vault::Kind::bearer;
  EXPECT_FALSE(ask("20150830/eu-central-1/s3/aws4_request"));
}

class SessionVault : public testing::Test {
 protected:
  vault::VaultSpec spec() const {
    vault::VaultSpec made;
    made.folder = home_.path() / "vault";
    made.store = vault::Store::file;
    return made;
  }
  void keep(const std::string& name, std::string_view secret) {
    auto opened = *vault::Vault::open(spec());
    vault::Credential credential;
    credential.name = name;
    ASSERT_TRUE(opened->add(credential, Secret::of(secret), vault::Vault::Replace::no, 1));
  }
  static egress::SecretRequest request(const std::string& name) {
    return {.id = 1, .credential = name, .destination = {}, .method = {}, .path = {}};
  }
  TemporaryDirectory home_ = *TemporaryDirectory::create("credentials");
};

TEST_F(SessionVault, ASessionHasWhatItsRulesNameAndNotMore) {
  keep("one", "secret-number-one");
  keep("two", "secret-number-two");
  keep("three", "secret-number-three");
  egress::DoorPolicy policy;
  policy.rules.user = {rule("one.example.com", "one"),
                       rule("two.example.com", "two", policy::EgressAction::ask),
                       rule("gone.example.com", "gone")};
  Credentials all(spec(), std::nullopt);
  auto notes = all.grant(policy);
  ASSERT_TRUE(notes) << notes.error().message;
  ASSERT_EQ(notes->size(), 1u);
  EXPECT_THAT(notes->at(0), testing::AllOf(HasSubstr("gone"), HasSubstr("config.toml:7"),
                                           HasSubstr("anchorhold credential add gone")));
  EXPECT_EQ(policy.credentials.size(), 2u);
  EXPECT_EQ(*all.secret(request("one")), "secret-number-one");
  EXPECT_EQ(*all.secret(request("two")), "secret-number-two");
  EXPECT_EQ(all.secret(request("three")).error().code, ErrorCode::permission_denied);

  Credentials only(spec(), std::vector<std::string>{"two"});
  ASSERT_TRUE(only.grant(policy));
  EXPECT_EQ(policy.credentials.size(), 1u);
  EXPECT_FALSE(only.secret(request("one")));
  EXPECT_EQ(*only.secret(request("two")), "secret-number-two");
  // Rules that are gone take their credentials along.
  policy.rules.user = {rule("one.example.com", "one")};
  ASSERT_TRUE(all.grant(policy));
  EXPECT_FALSE(all.secret(request("two")));
  EXPECT_TRUE(all.unlock());
}

TEST_F(SessionVault, WithoutARuleThatNamesOneTheVaultIsNotTouched) {
  egress::DoorPolicy policy;
  policy.rules.user = {rule("one.example.com", ""),
                       rule("two.example.com", "two", policy::EgressAction::deny)};
  Credentials none(spec(), std::nullopt);
  ASSERT_TRUE(none.grant(policy));
  EXPECT_TRUE(none.unlock());
  EXPECT_TRUE(none.variables(token).empty());
  EXPECT_FALSE(std::filesystem::exists(home_.path() / "vault"));
}

}  // namespace
}  // namespace anchorhold::session
