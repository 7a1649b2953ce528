// Whether a change of the person's files is seen, however it is made.
#include "rules_watch.h"

#include <condition_variable>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <mutex>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold::session {
namespace {

constexpr const char* one = "[[egress.rule]]\nhost = \"one.example\"\naction = \"allow\"\n";
constexpr const char* two = "[[egress.rule]]\nhost = \"two.example\"\naction = \"deny\"\n";

class RulesWatchTest : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return folder_.path() / name; }
  void write(const std::string& name, const std::string& text) { std::ofstream(path(name)) << text; }
  // As editors do that replace a file.
  void replace(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(path(name), text));
  }
  void start(const std::string& folder = ".", std::vector<std::filesystem::path> also = {}) {
    auto started =
        RulesWatch::start(path(folder),
                          {.good =
                               [this](const policy::PersonRules& rules) {
                                 std::string said;
                                 for (const auto& rule : rules.configured.rules)
                                   said += rule.host.text() + " ";
                                 for (const auto& rule : rules.kept) said += "kept " + rule.host.text() + " ";
                                 say(said);
                               },
                           .broken = [this](const Error& fault) { say("broken: " + fault.message); },
                           .check = [this](const policy::PersonRules& rules) -> Status {
                             for (const auto& file : rules.configured.extra_ca)
                               ANCHORHOLD_TRY(read_file(file, 100));
                             return {};
                           }},
                          std::move(also));
    ASSERT_TRUE(started) << started.error().message;
    watch_ = std::move(*started);
  }
  void say(std::string said) {
    std::lock_guard lock(mutex_);
    said_ = std::move(said);
    changed_.notify_all();
  }
  // What was said last, once it holds this.
  bool says(const std::string& text) {
    std::unique_lock lock(mutex_);
    bool found = changed_.wait_for(lock, std::chrono::seconds(60),
                                   [&] { return said_.find(text) != std::string::npos; });
    EXPECT_TRUE(found) << "waiting for '" << text << "', said was '" << said_ << "'";
    return found;
  }

  TemporaryDirectory folder_ = *TemporaryDirectory::create();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string said_ = "nothing";
  std::unique_ptr<RulesWatch> watch_;
};

TEST_F(RulesWatchTest, WrittenReplacedRemovedAndBrokenFiles) {
  start();
  write("config.toml", one);
  says("one.example");
  write("config.toml", two);
  says("two.example");
  replace("config.toml", one);
  says("one.example");
  replace("answers.toml", two);
  says("one.example kept two.example");
  replace("config.toml", std::string(one) + "unknown = 1\n");
  says("broken: config.toml:4");
  replace("answers.toml", "nonsense");
  replace("config.toml", one);
  says("broken: answers.toml:1");
  std::filesystem::remove(path("answers.toml"));
  says("one.example ");
  std::filesystem::rename(path("config.toml"), path("elsewhere.toml"));
  replace("answers.toml", one);
  says("kept one.example");
  std::filesystem::rename(path("elsewhere.toml"), path("config.toml"));
  says("one.example kept one.example");
}

TEST_F(RulesWatchTest, LinksAndFoldersThatComeLater) {
  start("late/folder");
  says("");
  std::filesystem::create_directory(path("late"));
  std::filesystem::create_directory(path("late/folder"));
  write("late/folder/config.toml", one);
  says("one.example");
  // Another folder in its place.
  std::filesystem::create_directory(path("other"));
  write("other/config.toml", two);
  std::filesystem::rename(path("late/folder"), path("late/old"));
  std::filesystem::create_directory_symlink("../other", path("late/folder"));
  says("two.example");
  // The file behind a chain of links changes, is replaced, and the chain leads elsewhere.
  write("behind.toml", one);
  std::filesystem::remove(path("other/config.toml"));
  std::filesystem::create_symlink("link.toml", path("other/config.toml"));
  std::filesystem::create_symlink(path("behind.toml"), path("other/link.toml"));
  says("one.example");
  write("behind.toml", two);
  says("two.example");
  replace("behind.toml", one);
  says("one.example");
  std::filesystem::remove(path("behind.toml"));
  says("broken: ");
  write("behind.toml", two);
  says("two.example");
}

// The list of credentials is such a file: whether rules can be followed depends on it.
TEST_F(RulesWatchTest, AChangeOfAnotherFileIsAReasonToLook) {
  start(".", {path("vault/list")});
  says("");
  for (const char* change : {"made", "written"}) {
    {
      std::lock_guard lock(mutex_);
      said_ = "not looked at yet";
    }
    std::filesystem::create_directories(path("vault"));
    replace("vault/list", change);
    std::unique_lock lock(mutex_);
    // Far sooner than it would be looked at without a reason.
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return said_.empty(); })) << change;
  }
}

TEST_F(RulesWatchTest, WhatStaysHalfWrittenIsBrokenUntilItIsClosed) {
  replace("config.toml", one);
  start();
  says("one.example");
  UniqueFd writer(open(path("config.toml").c_str(), O_WRONLY | O_APPEND));
  ASSERT_TRUE(write_all(writer.get(), std::as_bytes(std::span(std::string_view(two)))));
  says("broken: ");
  says("is being written");
  writer.reset();
  says("one.example two.example");
}

TEST_F(RulesWatchTest, FilesThatTheRulesNameAreWatchedToo) {
  replace("config.toml", "[egress]\nextra_ca = [\"" + path("certificates/ca.pem").string() + "\"]\n" + one);
  start();
  says("broken: ");
  std::filesystem::create_directory(path("certificates"));
  write("certificates/ca.pem", "x");
  says("one.example");
  std::filesystem::remove(path("certificates/ca.pem"));
  says("broken: ");
  replace("config.toml", two);
  says("two.example");
}

TEST_F(RulesWatchTest, ARefreshSeesWhatIsThereNow) {
  start();
  for (int round = 0; round < 20; ++round) {
    replace("config.toml", round % 2 ? one : two);
    watch_->refresh();
    std::lock_guard lock(mutex_);
    EXPECT_EQ(said_, round % 2 ? "one.example " : "two.example ");
  }
}

}  // namespace
}  // namespace anchorhold::session
