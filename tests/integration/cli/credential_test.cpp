// anchorhold credential from the outside: the vault's file, a terminal, and a real key ring.
#include <cstring>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

const std::string secret = "ghp-the-secret-of-a-person-0123";

class CredentialTest : public CliTest {
 protected:
  // No file of ours and nothing that was printed holds it.
  void expect_hidden(const Outcome& outcome) {
    EXPECT_EQ(outcome.out.find(secret), std::string::npos);
    EXPECT_EQ(outcome.err.find(secret), std::string::npos);
    for (const char* folder : {"config", "state", "run"})
      for (const auto& entry : std::filesystem::recursive_directory_iterator(home() / folder))
        if (entry.is_regular_file()) {
          EXPECT_EQ(read_text(entry.path()).find(secret), std::string::npos) << entry.path();
        }
  }
};

TEST_F(CredentialTest, IsAddedFromStandardInputListedAndForgotten) {
  auto added = run({"credential", "add", "github", "--kind", "git", "--variable", "GIT_TOKEN", "--json"},
                   secret + "\n");
  ASSERT_EQ(added.status, 0) << added.err;
  auto object = objects(added.out).at(0);
  EXPECT_EQ(object["user"], "x-access-token");
  EXPECT_EQ(object["store"], "file");
  expect_hidden(added);
  auto listed = run({"credential", "list"});
  EXPECT_NE(listed.out.find("github  git x-access-token  (file, added "), std::string::npos) << listed.out;
  expect_hidden(listed);
  auto again = run({"credential", "add", "github"}, "another-secret");
  EXPECT_EQ(again.status, 125);
  EXPECT_NE(again.err.find("--replace"), std::string::npos) << again.err;
  EXPECT_EQ(run({"credential", "add", "github", "--replace"}, "another-secret").status, 0);
  EXPECT_EQ(run({"credential", "rm", "github"}).status, 0);
  EXPECT_EQ(run({"credential", "rm", "github"}).status, 125);
  EXPECT_EQ(objects(run({"credential", "list", "--json"}).out).size(), 0u);
}

TEST_F(CredentialTest, WhatCannotBeOneIsRefused) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"x", "--kind", "other"},
                                             {"x", "--kind", "basic"},
                                             {"x", "--kind", "header"},
                                             {"x", "--header", "X-Key"},
                                             {"x y"},
                                             {"../x"},
                                             {"x", "--store", "paper"}}) {
    std::vector<std::string> argv{"credential", "add"};
    argv.insert(argv.end(), words.begin(), words.end());
    EXPECT_EQ(run(argv, secret).status, 125) << words.at(0);
  }
  for (const std::string& bad :
       {std::string(), std::string("short"), secret + "\n" + secret, "tab\t" + secret,
        std::string(20'000, 'x'), std::string("umlaut-\xc3\xa4-umlaut")})
    EXPECT_EQ(run({"credential", "add", "x"}, bad).status, 125) << bad.substr(0, 40);
  EXPECT_EQ(objects(run({"credential", "list", "--json"}).out).size(), 0u);
}

TEST_F(CredentialTest, ASessionCannotHaveWhatIsNotThereOrNowhereNamed) {
  auto missing = run({"run", "--credential", "nothing", "--", "true"});
  EXPECT_EQ(missing.status, 125);
  EXPECT_NE(missing.err.find("anchorhold credential add nothing"), std::string::npos) << missing.err;
  ASSERT_EQ(run({"credential", "add", "github"}, secret).status, 0);
  auto unnamed = run({"run", "--credential", "github", "--", "true"});
  EXPECT_EQ(unnamed.status, 125);
  EXPECT_NE(unnamed.err.find("--credential github=HOST"), std::string::npos) << unnamed.err;
}

TEST_F(CredentialTest, ATestGoesOnlyWhereARuleNamesIt) {
  ASSERT_EQ(run({"credential", "add", "github"}, secret).status, 0);
  auto nowhere = run({"credential", "test", "github"});
  EXPECT_EQ(nowhere.status, 125);
  write_text(home() / "config/anchorhold/config.toml",
             "[[egress.rule]]\nhost = \"api.example.com\"\naction = \"allow\"\ncredential = \"github\"\n");
  for (const char* url :
       {"https://elsewhere.example.com/", "http://api.example.com/", "https://a:b@api.example.com/"})
    EXPECT_EQ(run({"credential", "test", "github", url}).status, 125) << url;
}

TEST_F(CredentialTest, DamageNamesTheFile) {
  ASSERT_EQ(run({"credential", "add", "github"}, secret).status, 0);
  auto file = home() / "config/anchorhold/vault/secrets";
  auto text = read_text(file);
  text[text.size() / 2] ^= 1;
  write_text(file, text);
  auto outcome = run({"credential", "add", "another"}, secret);
  EXPECT_EQ(outcome.status, 125);
  EXPECT_NE(outcome.err.find(file.string()), std::string::npos) << outcome.err;
  EXPECT_EQ(read_text(file), text);
}

// Types on a terminal and gives back everything it showed.
class TypedTest : public CredentialTest {
 protected:
  std::pair<int, std::string> type(std::vector<std::string> argv,
                                   const std::vector<std::pair<std::string, std::string>>& dialogue) {
    argv.insert(argv.begin(), program());
    auto variables = environment({});
    std::vector<char*> words, values;
    for (auto& word : argv) words.push_back(word.data());
    for (auto& value : variables) values.push_back(value.data());
    words.push_back(nullptr);
    values.push_back(nullptr);
    int terminal = -1;
    pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid == 0) {
      execve(words[0], words.data(), values.data());
      _exit(126);
    }
    UniqueFd held(terminal);
    std::string seen;
    std::size_t from = 0;
    auto read_more = [&] {
      pollfd waited{terminal, POLLIN, 0};
      char buffer[4096];
      if (poll(&waited, 1, static_cast<int>(patience.count())) <= 0) return false;
      ssize_t got = read(terminal, buffer, sizeof buffer);
      if (got > 0) seen.append(buffer, static_cast<std::size_t>(got));
      return got > 0;
    };
    for (const auto& [question, answer] : dialogue) {
      while (seen.find(question, from) == std::string::npos)
        if (!read_more()) break;
      from = seen.size();
      EXPECT_EQ(write(terminal, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
    }
    while (read_more()) {
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return {WEXITSTATUS(status), seen};
  }
};

TEST_F(TypedTest, ATerminalDoesNotShowASecret) {
  auto [status, seen] = type({"credential", "add", "github"}, {{"(not shown): ", secret + "\n"}});
  EXPECT_EQ(status, 0) << seen;
  EXPECT_EQ(seen.find(secret), std::string::npos);
  EXPECT_NE(seen.find("github  bearer"), std::string::npos) << seen;
  auto [cancelled, said] = type({"credential", "add", "other"}, {{"(not shown): ", std::string("gh\x03")}});
  EXPECT_EQ(cancelled, 125) << said;
  EXPECT_EQ(objects(run({"credential", "list", "--json"}).out).size(), 1u);
}

TEST_F(TypedTest, APassphraseIsAskedForAndProtectsTheFile) {
  auto [status, seen] = type({"credential", "add", "github", "--passphrase"},
                             {{"Secret (not shown): ", secret + "\n"},
                              {"New passphrase of the vault (not shown): ", "correct horse\n"},
                              {"Once more (not shown): ", "correct horse\n"}});
  EXPECT_EQ(status, 0) << seen;
  EXPECT_EQ(seen.find("correct"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(home() / "config/anchorhold/vault/key"));
  auto nobody = start_program({"/usr/bin/setsid", "--wait", program(), "credential", "add", "another"});
  nobody.write_input(secret);
  nobody.close_input();
  auto refused = nobody.finish();
  EXPECT_EQ(refused.status, 125);
  write_text(home() / "words", "correct horse\n");
  auto unattended = start({"credential", "add", "another"},
                          {{"ANCHORHOLD_VAULT_PASSPHRASE_FILE", (home() / "words").string()}});
  unattended.write_input(secret);
  unattended.close_input();
  EXPECT_EQ(unattended.finish().status, 0);
  write_text(home() / "words", "wrong horse\n");
  auto wrong = start({"credential", "add", "third"},
                     {{"ANCHORHOLD_VAULT_PASSPHRASE_FILE", (home() / "words").string()}});
  wrong.write_input(secret);
  wrong.close_input();
  auto said = wrong.finish();
  EXPECT_EQ(said.status, 125);
  EXPECT_NE(said.err.find("passphrase"), std::string::npos) << said.err;
}

TEST_F(TypedTest, ThePassphraseIsChangedOrNothingIs) {
  auto [status, seen] = type({"credential", "add", "github", "--passphrase"},
                             {{"Secret (not shown): ", secret + "\n"},
                              {"New passphrase of the vault (not shown): ", "correct horse\n"},
                              {"Once more (not shown): ", "correct horse\n"}});
  ASSERT_EQ(status, 0) << seen;
  auto [mistyped, said] =
      type({"credential", "passphrase"}, {{"Passphrase of the vault (not shown): ", "correct horse\n"},
                                          {"New passphrase of the vault (not shown): ", "battery staple\n"},
                                          {"Once more (not shown): ", "battery stable\n"}});
  EXPECT_EQ(mistyped, 125) << said;
  auto [changed, shown] =
      type({"credential", "passphrase"}, {{"Passphrase of the vault (not shown): ", "correct horse\n"},
                                          {"New passphrase of the vault (not shown): ", "battery staple\n"},
                                          {"Once more (not shown): ", "battery staple\n"}});
  EXPECT_EQ(changed, 0) << shown;
  EXPECT_EQ(shown.find("staple"), std::string::npos);
  EXPECT_NE(shown.find("protected by the new passphrase"), std::string::npos) << shown;
  // From standard input, with the present one in a file.
  write_text(home() / "words", "battery staple\n");
  const std::string file = (home() / "words").string();
  auto piped = [&](const std::vector<std::string>& argv, const std::string& input) {
    auto running = start(argv, {{"ANCHORHOLD_VAULT_PASSPHRASE_FILE", file}});
    running.write_input(input);
    running.close_input();
    return running.finish();
  };
  auto third = piped({"credential", "passphrase"}, "third words\n");
  EXPECT_EQ(third.status, 0) << third.err;
  EXPECT_NE(third.err.find("holds the passphrase that was"), std::string::npos) << third.err;
  EXPECT_EQ(piped({"credential", "passphrase"}, "fourth words\n").status, 125);
  write_text(home() / "words", "third words\n");
  auto none = piped({"credential", "passphrase", "--none", "--json"}, "");
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_EQ(objects(none.out).at(0).at("by"), "key file");
  EXPECT_TRUE(std::filesystem::exists(home() / "config/anchorhold/vault/key"));
}

// A key ring of the test's own, on a bus of its own.
TEST_F(CredentialTest, TheKeyRingOfTheDesktopHoldsTheSecret) {
  for (const char* needed : {"/usr/bin/gnome-keyring-daemon", "/usr/bin/dbus-run-session"})
    if (!std::filesystem::exists(needed)) GTEST_SKIP() << needed << " is not there: no key ring is tried";
  // Unlocked, it goes to the background and ends with its bus.
  const std::string script =
      "printf test | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1 || exit 77\n"
      "set -e; anchorhold=$1; secret=$2\n"
      "printf '%s' \"$secret\" | \"$anchorhold\" credential add github --json\n"
      "\"$anchorhold\" credential list --json\n"
      "printf 'another-secret' | \"$anchorhold\" credential add github --replace --json >/dev/null\n"
      "printf 'in-the-file-now' | \"$anchorhold\" credential add github --replace --store file --json\n"
      "printf '%s' \"$secret\" | \"$anchorhold\" credential add github --replace --store secret-service "
      "--json\n"
      "\"$anchorhold\" credential rm github\n"
      "\"$anchorhold\" credential list --json\n";
  auto outcome =
      run_program({"/usr/bin/dbus-run-session", "--", "/bin/sh", "-c", script, "sh", program(), secret});
  if (outcome.status == 77) GTEST_SKIP() << "no key ring could be started: " << outcome.err;
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  std::vector<std::string> stores;
  for (const char* line = outcome.out.c_str(); (line = std::strstr(line, "\"store\":\"")); ++line)
    stores.push_back(std::string(line + 9).substr(0, std::string(line + 9).find('"')));
  EXPECT_EQ(stores, (std::vector<std::string>{"secret-service", "secret-service", "file", "secret-service"}));
  EXPECT_NE(outcome.out.find("forgotten: github"), std::string::npos);
  EXPECT_EQ(outcome.out.find(secret), std::string::npos);
  expect_hidden(outcome);
}

}  // namespace
}  // namespace anchorhold::cli
