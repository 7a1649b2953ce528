#include "vault/credential.h"

#include <gtest/gtest.h>

namespace anchorhold::vault {
namespace {

Credential credential(Kind kind, std::string user = {}, std::string header = {}) {
  Credential made;
  made.name = "example";
  made.kind = kind;
  made.user = std::move(user);
  made.header = std::move(header);
  return made;
}

TEST(VaultCredential, KindsNeedWhatTheyNeedAndNothingElse) {
  struct Case {
    Credential credential;
    bool good;
  };
  const Case table[] = {
      {credential(Kind::bearer), true},
      {credential(Kind::bearer, "me"), false},
      {credential(Kind::bearer, "", "X-Key"), false},
      {credential(Kind::basic, "me"), true},
      {credential(Kind::basic), false},
      {credential(Kind::basic, "a:b"), false},
      {credential(Kind::header, "", "X-Api-Key"), true},
      {credential(Kind::header), false},
      {credential(Kind::header, "", "X Key"), false},
      {credential(Kind::header, "", "Host"), false},
      {credential(Kind::header, "", "Content-Length"), false},
      {credential(Kind::header, "", "Cookie"), false},
      {credential(Kind::header, "me", "X-Api-Key"), false},
      {credential(Kind::aws_sigv4, "AKIDEXAMPLE"), true},
      {credential(Kind::aws_sigv4), false},
      {credential(Kind::git), true},
      {credential(Kind::git, "oauth2"), true},
  };
  for (const auto& [given, good] : table) {
    Credential completed = given;
    EXPECT_EQ(complete(completed).has_value(), good)
        << to_string(given.kind) << " '" << given.user << "' '" << given.header << "'";
  }
  Credential git = credential(Kind::git);
  ASSERT_TRUE(complete(git));
  EXPECT_EQ(git.user, "x-access-token");
}

TEST(VaultCredential, NamesAndVariablesAreWords) {
  for (const char* name : {"", "-a", ".", "a b", "a/b", "../x", "ä", "a\n"}) {
    Credential bad = credential(Kind::bearer);
    bad.name = name;
    EXPECT_FALSE(complete(bad)) << name;
  }
  for (const char* variable : {"", "1A", "A-B", "A=B", "A B"}) {
    Credential bad = credential(Kind::bearer);
    bad.variables = {variable};
    EXPECT_FALSE(complete(bad)) << variable;
  }
  Credential region = credential(Kind::bearer);
  region.region = "eu-central-1";
  EXPECT_FALSE(complete(region));
}

TEST(VaultCredential, ASecretCanStandInAHeader) {
  EXPECT_TRUE(check_secret(Kind::bearer, "ghp_0123456789"));
  EXPECT_TRUE(check_secret(Kind::basic, "pass word"));
  EXPECT_TRUE(check_secret(Kind::aws_sigv4, "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\nIQoJb3JpZ2luX2VjE"));
  for (const char* bad : {"", "short", "with space", "two\nlines-here", "carriage\rreturn", "tab\tulator",
                          "umläut-is-no-ascii"})
    EXPECT_FALSE(check_secret(Kind::bearer, bad)) << bad;
  EXPECT_FALSE(check_secret(Kind::aws_sigv4, "secret-key-1\n"));
  EXPECT_FALSE(check_secret(Kind::aws_sigv4, "secret-key-1\nsession-token\nthird-line"));
  EXPECT_FALSE(check_secret(Kind::bearer, std::string(20'000, 'x')));
}

TEST(VaultCredential, TheListComesBackAsItWasAndNotOtherwise) {
  std::vector<Credential> list{credential(Kind::basic, "me"), credential(Kind::aws_sigv4, "AKIDEXAMPLE")};
  list[1].name = "aws";
  list[1].region = "eu-central-1";
  list[1].variables = {"A", "B_2"};
  list[1].store = Store::secret_service;
  list[1].created = 1'700'000'000;
  list[1].tested_status = 200;
  std::string text = encode_catalogue(list);
  auto read = parse_catalogue(text, "the list");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, list);
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    auto damaged = parse_catalogue(changed, "the list");
    ASSERT_FALSE(damaged) << at;
    EXPECT_EQ(damaged.error().code, ErrorCode::data_loss);
    EXPECT_NE(damaged.error().message.find("the list"), std::string::npos);
    EXPECT_FALSE(damaged.error().hint.empty());
    ASSERT_FALSE(parse_catalogue(text.substr(0, at), "the list")) << at;
  }
  EXPECT_FALSE(parse_catalogue(text + " ", "the list"));
  list[1].name = list[0].name;
  EXPECT_FALSE(parse_catalogue(encode_catalogue(list), "the list")) << "one name twice";
}

}  // namespace
}  // namespace anchorhold::vault
