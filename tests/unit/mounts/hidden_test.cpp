#include "mounts/hidden.h"

#include <gtest/gtest.h>

namespace anchorhold::mounts {
namespace {

TEST(HiddenNames, TheStandardListHidesSecrets) {
  const auto& hidden = HiddenNames::standard();
  for (auto name : {".env",           ".env.production",
                    ".envrc",         "server.pem",
                    ".pem",           "tls.key",
                    "id_rsa",         "id_ed25519.pub",
                    ".ssh",           ".aws",
                    ".gnupg",         ".netrc",
                    "_netrc",         ".npmrc",
                    ".pypirc",        ".git-credentials",
                    "store.jks",      "a.p12",
                    "passwords.kdbx", "login.keyring",
                    ".kube",          ".docker"})
    EXPECT_TRUE(hidden.hides(name)) << name;
  for (auto name :
       {"env", "environment.yml", "report.md", "key", "keys.txt", "pem", "a.pem.txt", "identity.txt", "id",
        "ssh", ".git", ".gitignore", ".config", "monkey", ".bashrc", "cacert.pem", ""})
    EXPECT_FALSE(hidden.hides(name)) << name;
}

TEST(HiddenNames, NoCaseVariantOrNormalFormGetsThrough) {
  const auto& hidden = HiddenNames::standard();
  for (auto name : {".ENV", ".Env.local", "SERVER.PEM", "Id_Rsa", ".SSH", ".NpmRc",
                    ".\xef\xbd\x85nv",   // fullwidth e
                    ".e\xe2\x80\x8dnv",  // zero width joiner
                    ".\xc2\xad"
                    "env",                // soft hyphen
                    "id\xef\xbc\xbfrsa",  // fullwidth low line
                    ".\xc5\xbfsh",        // long s folds to s
                    "tls.\xe2\x84\xaa"
                    "ey",         // Kelvin sign folds to k
                    ".env\xff"})  // not UTF-8
    EXPECT_TRUE(hidden.hides(name)) << name;
}

TEST(HiddenNames, PatternsOfPolicy) {
  auto hidden = HiddenNames::create({"*.secret", "se*ret*key", "!open.secret"});
  ASSERT_TRUE(hidden);
  EXPECT_TRUE(hidden->hides("a.secret"));
  EXPECT_TRUE(hidden->hides("A.SECRET"));
  EXPECT_FALSE(hidden->hides("open.secret"));
  EXPECT_TRUE(hidden->hides("seXretYYkey"));
  EXPECT_TRUE(hidden->hides("seretkey"));
  EXPECT_FALSE(hidden->hides("sekey"));
  EXPECT_FALSE(hidden->hides(".env"));
  for (auto bad : {"", "*", "***", "!", "a/b", "/"}) EXPECT_FALSE(HiddenNames::create({bad})) << bad;
  EXPECT_FALSE(HiddenNames::create({std::string("a\0b", 3)}));
}

TEST(HiddenNames, APatternOfManyStarsIsNotSlow) {
  auto hidden = HiddenNames::create({"*a*a*a*a*a*a*a*a*b"});
  ASSERT_TRUE(hidden);
  EXPECT_FALSE(hidden->hides(std::string(255, 'a')));
}

TEST(FoldName, KeepsWhatIsNotUtf8ApartFromItsLetters) {
  EXPECT_EQ(fold_name("A\xff\xfe"), "a\xff\xfe");
  EXPECT_EQ(fold_name("Stra\xc3\x9f"
                      "e"),
            "strasse");
  EXPECT_EQ(fold_name("e\xcc\x81"), fold_name("\xc3\xa9"));
}

}  // namespace
}  // namespace anchorhold::mounts
