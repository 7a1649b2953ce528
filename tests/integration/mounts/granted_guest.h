// A real guest with granted folders, and short ways to run shell commands in it.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <signal.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "base/files.h"
#include "base/paths.h"
#include "guest_harness.h"
#include "mounts/grant.h"

namespace anchorhold::mounts {

struct Said {
  int status = -1;
  std::string output;  // both streams
};

class GrantedGuest {
 public:
  // Folders with these names and modes are made and granted, and one that is there already, to read.
  static std::unique_ptr<GrantedGuest> boot(const std::vector<std::pair<std::string, Mode>>& folders,
                                            const std::filesystem::path& to_read = {}) {
    auto made = std::make_unique<GrantedGuest>();
    anchorhold::testing::RealGuestOptions options;
    auto rules = GrantRules::current();
    if (!rules) return failed(rules.error());
    for (const auto& [name, mode] : folders) {
      std::filesystem::create_directory(made->folder(name));
      prepare(made->folder(name));
      auto grant = resolve_grant(made->folder(name), mode, options.grants, *rules);
      if (!grant) return failed(grant.error());
      options.grants.push_back(std::move(*grant));
    }
    if (!to_read.empty()) {
      auto grant = resolve_grant(to_read, Mode::ro, options.grants, *rules);
      if (!grant) return failed(grant.error());
      options.grants.push_back(std::move(*grant));
    }
    auto guest = anchorhold::testing::RealGuest::boot(std::move(options));
    if (!guest) return failed(guest.error());
    made->guest_ = std::move(*guest);
    made->ledgers_ = *state_directory() / "ledgers" / made->guest_->session().id().value();
    return made;
  }

  ~GrantedGuest() {
    end();
    std::error_code ignored;
    std::filesystem::remove_all(ledgers_, ignored);
  }
  // The session ends, and its guest with it; what the keepers noted is there.
  void end() { guest_.reset(); }
  const std::filesystem::path& ledgers() const { return ledgers_; }

  std::filesystem::path folder(const std::string& name) const { return directory_.path() / name; }

  session::GuestClient& client() { return guest_->client(); }
  // One more, while it runs.
  void grant(const std::filesystem::path& path, Mode mode) {
    auto granted = guest_->session().grant(path, mode);
    EXPECT_TRUE(granted) << granted.error().message;
  }
  // Where the keeper of a granted folder keeps what was there before.
  std::filesystem::path ledger(const std::string& name) const { return ledgers_ / name / "ledger"; }

  // SIGKILL to one of the programs that serve this guest, by its name.
  void kill_process(const std::string& name) {
    for (pid_t pid : anchorhold::testing::children_named(getpid(), name)) {
      EXPECT_EQ(kill(pid, SIGKILL), 0);
      return;
    }
    ADD_FAILURE() << "no " << name << " runs";
  }
  void wait_until_lost() {
    auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!guest_->guest().lost() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(guest_->guest().lost());
  }
  std::string cause() { return guest_->guest().cause(); }

  Said run(const std::string& script, const std::string& user = {}) {
    session::ExecSpec spec;
    spec.shell_command = script;
    spec.user = user;
    spec.errors = session::ExecSpec::Errors::merged;
    Said said;
    session::OutputSinks sinks;
    sinks.standard_output = [&](std::string_view bytes) { said.output.append(bytes); };
    auto status = guest_->client().run(spec, sinks);
    if (!status) {
      said.output += status.error().message;
      return said;
    }
    said.status = session::shell_exit_code(*status);
    return said;
  }

  // As the session starts commands.
  Said command(std::vector<std::string> argv, const std::string& working_directory = {}) {
    session::ExecSpec spec;
    spec.working_directory = working_directory;
    spec.argv = std::move(argv);
    spec.errors = session::ExecSpec::Errors::merged;
    Said said;
    auto& session = guest_->session();
    auto exec = session.start_exec(guest_->guest(), spec);
    if (!exec) {
      said.output = exec.error().message;
      return said;
    }
    for (;;) {
      auto piece = (*exec)->read(session::OutputStream::standard_output);
      if (!piece || !*piece) break;
      said.output += **piece;
    }
    auto status = (*exec)->wait();
    session.exec_ended(guest_->guest(), (*exec)->id(), status);
    if (status) said.status = session::shell_exit_code(*status);
    return said;
  }
  session::Session& session() { return guest_->session(); }
  session::Guest& guest() { return guest_->guest(); }

 private:
  static std::unique_ptr<GrantedGuest> failed(const Error& error) {
    ADD_FAILURE() << error.message;
    return nullptr;
  }
  // What is there before the session begins.
  static void prepare(const std::filesystem::path& folder) {
    std::ofstream(folder / "before.txt") << "as it was\n";
    std::ofstream(folder / ".env") << "SECRET=1\n";
    std::filesystem::create_symlink("/etc/passwd", folder / "outside");
  }

  TemporaryDirectory directory_ = *TemporaryDirectory::create("anchorhold-mounts-guest");
  std::filesystem::path ledgers_;
  std::unique_ptr<anchorhold::testing::RealGuest> guest_;
};

// Tests that share one guest: their suite begins it.
class GrantedGuestTest : public ::testing::Test {
 protected:
  using Grants = std::vector<std::pair<std::string, Mode>>;
  static void boot(const Grants& grants) {
    if (anchorhold::testing::RealGuest::why_not().empty()) guest_ = GrantedGuest::boot(grants);
  }
  static void TearDownTestSuite() { guest_.reset(); }
  void SetUp() override {
    if (auto why = anchorhold::testing::RealGuest::why_not(); !why.empty()) GTEST_SKIP() << why;
    ASSERT_TRUE(guest_);
  }
  static inline std::unique_ptr<GrantedGuest> guest_;
};

}  // namespace anchorhold::mounts
