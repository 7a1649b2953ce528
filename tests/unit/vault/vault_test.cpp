// The vault with its file of secrets, from several threads and processes.
#include "vault/vault.h"

#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold::vault {
namespace {

class VaultTest : public testing::Test {
 protected:
  std::filesystem::path folder() const { return home_.path() / "vault"; }
  std::shared_ptr<Vault> open(AskPassphrase ask = {}, bool with_passphrase = false) {
    VaultSpec spec;
    spec.folder = folder();
    spec.ask_passphrase = std::move(ask);
    spec.store = Store::file;
    spec.new_with_passphrase = with_passphrase;
    spec.cost = PassphraseCost::interactive;
    return *Vault::open(std::move(spec));
  }
  static AskPassphrase says(std::string words, int* asked = nullptr) {
    return [words, asked](bool) -> Result<Secret> {
      if (asked) ++*asked;
      return Secret::of(words);
    };
  }
  static Status add(Vault& vault, const std::string& name, std::string_view secret = "secret-of-a-person",
                    Vault::Replace replace = Vault::Replace::no) {
    Credential credential;
    credential.name = name;
    auto added = vault.add(credential, Secret::of(secret), replace, 1'700'000'000);
    if (!added) return fail(std::move(added).error());
    return {};
  }
  static std::string get(Vault& vault, const std::string& name) {
    auto secret = vault.secret(name);
    if (!secret) return "error: " + secret.error().message;
    return std::string(secret->expose());
  }
  void change_byte(const std::string& file, std::streamoff at) {
    std::fstream stream(folder() / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    char byte = static_cast<char>(stream.get());
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 0x20));
  }

  TemporaryDirectory home_ = *TemporaryDirectory::create("vault");
};

TEST_F(VaultTest, KeepsListsReplacesAndForgets) {
  auto vault = open();
  ASSERT_TRUE(add(*vault, "github", "ghp_0123456789"));
  ASSERT_TRUE(add(*vault, "anthropic", "sk-0123456789"));
  EXPECT_EQ(add(*vault, "github").error().code, ErrorCode::already_exists);
  EXPECT_EQ(get(*vault, "github"), "ghp_0123456789");
  ASSERT_TRUE(add(*vault, "github", "ghp_another-one", Vault::Replace::yes));
  ASSERT_TRUE(vault->note_test("github", 1'700'000'500, 200));
  // Another process.
  auto again = open();
  EXPECT_EQ(get(*again, "github"), "ghp_another-one");
  auto list = again->list();
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ(list->at(0).name, "anthropic");
  EXPECT_EQ(list->at(1).tested_status, 200);
  ASSERT_TRUE(again->remove("github"));
  EXPECT_EQ(vault->secret("github").error().code, ErrorCode::not_found);
  EXPECT_EQ(vault->remove("github").error().code, ErrorCode::not_found);
  EXPECT_EQ(get(*vault, "anthropic"), "sk-0123456789");
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    EXPECT_EQ(entry.status().permissions() & std::filesystem::perms::all,
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)
        << entry.path();
    std::string text = *read_file(entry.path(), 1 << 20);
    for (const char* secret : {"ghp_", "sk-01"}) EXPECT_EQ(text.find(secret), std::string::npos);
  }
}

TEST_F(VaultTest, APassphraseIsAskedForOnceAndAWrongOneOpensNothing) {
  int asked = 0;
  auto vault = open(says("correct horse", &asked), true);
  ASSERT_TRUE(add(*vault, "github", "ghp_0123456789"));
  EXPECT_EQ(get(*vault, "github"), "ghp_0123456789");
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(std::filesystem::exists(folder() / "key"));

  auto wrong = open(says("wrong horse"));
  EXPECT_EQ(wrong->secret("github").error().code, ErrorCode::permission_denied);
  EXPECT_EQ(add(*wrong, "another").error().code, ErrorCode::permission_denied);
  EXPECT_EQ(wrong->unlock(*wrong->list()).error().code, ErrorCode::permission_denied);
  auto nobody = open();
  auto refused = nobody->secret("github");
  EXPECT_EQ(refused.error().code, ErrorCode::failed_precondition);
  EXPECT_NE(refused.error().hint.find("ANCHORHOLD_VAULT_PASSPHRASE_FILE"), std::string::npos);

  auto file = home_.path() / "words";
  ASSERT_TRUE(write_file_atomic(file, "correct horse\n"));
  setenv("ANCHORHOLD_VAULT_PASSPHRASE_FILE", file.c_str(), 1);
  auto unattended = open();
  EXPECT_EQ(get(*unattended, "github"), "ghp_0123456789");
  unsetenv("ANCHORHOLD_VAULT_PASSPHRASE_FILE");
}

TEST_F(VaultTest, AnotherPassphraseTakesThePlaceOfTheOldOneOrNothingChanges) {
  EXPECT_EQ(open()->protect(says("new words")).error().code, ErrorCode::not_found);
  auto vault = open(says("old words"), true);
  ASSERT_TRUE(add(*vault, "github", "ghp_0123456789"));
  auto before = *read_file(folder() / "secrets", max_vault_bytes);
  // What is refused changes nothing.
  auto refused = [&](Vault& by, const AskPassphrase& ask) {
    auto status = by.protect(ask);
    EXPECT_EQ(*read_file(folder() / "secrets", max_vault_bytes), before);
    return status ? ErrorCode::internal : status.error().code;
  };
  EXPECT_EQ(refused(*open(says("wrong words")), says("new words")), ErrorCode::permission_denied);
  EXPECT_EQ(refused(*vault, says("")), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(*vault, says("two\nlines")), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(*vault, says(std::string(4096, 'x'))), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(*vault, [](bool) -> Result<Secret> { return fail(ErrorCode::cancelled, "Ctrl-C"); }),
            ErrorCode::cancelled);

  ASSERT_TRUE(open(says("old words"))->protect(says("new words")));
  EXPECT_EQ(get(*open(says("new words")), "github"), "ghp_0123456789");
  EXPECT_EQ(open(says("old words"))->secret("github").error().code, ErrorCode::permission_denied);
  // Who had the file open by the old one is asked again.
  EXPECT_EQ(vault->secret("github").error().code, ErrorCode::permission_denied);

  ASSERT_TRUE(open(says("new words"))->protect({}));
  EXPECT_TRUE(std::filesystem::exists(folder() / "key"));
  auto by_key = open();
  EXPECT_EQ(get(*by_key, "github"), "ghp_0123456789");
  ASSERT_TRUE(by_key->protect(says("third words")));
  EXPECT_FALSE(std::filesystem::exists(folder() / "key"));
  EXPECT_EQ(get(*by_key, "github"), "ghp_0123456789");
  EXPECT_EQ(get(*open(says("third words")), "github"), "ghp_0123456789");
}

TEST_F(VaultTest, DamageIsSaidWithItsFileAndWhatToDoAndNothingIsChanged) {
  ASSERT_TRUE(add(*open(), "github", "ghp_0123456789"));
  for (const auto& [file, at] : {std::pair{"secrets", 9},
                                 {"secrets", 60},
                                 {"secrets", 70},
                                 {"secrets", 200},
                                 {"credentials", 40},
                                 {"credentials", 120},
                                 {"key", 5}}) {
    change_byte(file, at);
    auto vault = open();
    auto secret = vault->secret("github");
    ASSERT_FALSE(secret) << file << " " << at;
    std::string named = (folder() / (std::string(file) == "key" ? "secrets" : file)).string();
    EXPECT_NE(secret.error().message.find(named), std::string::npos) << secret.error().message;
    EXPECT_FALSE(secret.error().hint.empty());
    auto before = *read_file(folder() / "secrets", 1 << 20);
    EXPECT_FALSE(add(*vault, "another")) << "nothing is written over what cannot be read";
    EXPECT_EQ(*read_file(folder() / "secrets", 1 << 20), before);
    change_byte(file, at);
    EXPECT_EQ(get(*open(), "github"), "ghp_0123456789");
  }
  for (const char* file : {"secrets", "credentials", "key"}) {
    auto whole = *read_file(folder() / file, 1 << 20);
    ASSERT_TRUE(write_file_atomic(folder() / file, std::string_view(whole).substr(0, whole.size() / 2)));
    EXPECT_FALSE(open()->secret("github")) << file;
    ASSERT_TRUE(write_file_atomic(folder() / file, ""));
    EXPECT_FALSE(open()->secret("github")) << file;
    std::filesystem::remove(folder() / file);
    EXPECT_FALSE(open()->secret("github")) << file;
    ASSERT_TRUE(write_file_atomic(folder() / file, whole));
    EXPECT_EQ(get(*open(), "github"), "ghp_0123456789");
  }
}

TEST_F(VaultTest, WhatOthersCanReadIsNotUsed) {
  ASSERT_TRUE(add(*open(), "github", "ghp_0123456789"));
  for (const char* file : {"secrets", "key"}) {
    chmod((folder() / file).c_str(), 0644);
    auto secret = open()->secret("github");
    ASSERT_FALSE(secret);
    EXPECT_EQ(secret.error().code, ErrorCode::failed_precondition);
    EXPECT_NE(secret.error().hint.find("chmod 600"), std::string::npos);
    chmod((folder() / file).c_str(), 0600);
  }
  EXPECT_EQ(get(*open(), "github"), "ghp_0123456789");
}

TEST_F(VaultTest, WritersDoNotLoseEachOthersCredentials) {
  constexpr int writers = 4, each = 5;
  ASSERT_TRUE(add(*open(), "first"));
  std::vector<pid_t> children;
  for (int writer = 0; writer < writers; ++writer) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      auto vault = open();
      for (int i = 0; i < each; ++i)
        good = good && add(*vault, fmt::format("c{}-{}", writer, i), fmt::format("secret-{}-{}", writer, i));
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  auto vault = open();
  EXPECT_EQ(vault->list()->size(), 1u + writers * each);
  for (int writer = 0; writer < writers; ++writer)
    for (int i = 0; i < each; ++i)
      EXPECT_EQ(get(*vault, fmt::format("c{}-{}", writer, i)), fmt::format("secret-{}-{}", writer, i));
}

// Whenever the writer dies, what is there is the old or the new, the next one can go on, and no half-written
// file is left by it.
TEST_F(VaultTest, AWriterThatIsKilledLeavesAWholeVault) {
  ASSERT_TRUE(add(*open(), "kept", "kept-secret"));
  for (int round = 0; round < 25; ++round) {
    int said[2];
    ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto vault = open();
      for (int i = 0;; ++i) {
        if (!add(*vault, "changed", fmt::format("changed-{:08}", i), Vault::Replace::yes)) _exit(1);
        if (write(said[1], "x", 1) != 1) _exit(1);
      }
    }
    // In the middle of another write each time.
    char byte;
    for (int seen = 0; seen <= round % 5; ++seen) ASSERT_EQ(read(said[0], &byte, 1), 1);
    for (int spin = 0; spin < round * 1000; ++spin) asm volatile("" ::: "memory");
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    close(said[0]);
    close(said[1]);
    auto vault = open();
    EXPECT_EQ(get(*vault, "kept"), "kept-secret");
    EXPECT_TRUE(get(*vault, "changed").starts_with("changed-")) << get(*vault, "changed");
    ASSERT_TRUE(add(*vault, "kept", "kept-secret", Vault::Replace::yes));
    for (const auto& entry : std::filesystem::directory_iterator(folder()))
      EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
  }
}

// Between a key file and a passphrase, back and forth: whenever it dies, one of the two opens all of it.
TEST_F(VaultTest, AChangeOfThePassphraseThatIsKilledLeavesTheOldOneOrTheNew) {
  ASSERT_TRUE(add(*open(), "kept", "kept-secret"));
  for (int round = 0; round < 15; ++round) {
    int said[2];
    ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto vault = open(says("some words"));
      for (;;) {
        if (!vault->protect(says("some words")) || !vault->protect({})) _exit(1);
        if (write(said[1], "x", 1) != 1) _exit(1);
      }
    }
    char byte;
    for (int seen = 0; seen <= round % 3; ++seen) ASSERT_EQ(read(said[0], &byte, 1), 1);
    for (int spin = 0; spin < round * 100'000; ++spin) asm volatile("" ::: "memory");
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    close(said[0]);
    close(said[1]);
    auto vault = open(says("some words"));
    EXPECT_EQ(get(*vault, "kept"), "kept-secret");
    ASSERT_TRUE(add(*vault, "other", "other-secret", Vault::Replace::yes));
  }
}

}  // namespace
}  // namespace anchorhold::vault
