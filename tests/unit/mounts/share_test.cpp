// The processes of a grant, started and watched as the host does it.
#include "mounts/share.h"

#include <condition_variable>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <mutex>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"
#include "mounts/access.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

class Notices {
 public:
  std::function<void(const ShareNotice&)> sink() {
    return [this](const ShareNotice& notice) {
      std::lock_guard lock(mutex_);
      notices_.push_back(notice);
      changed_.notify_all();
    };
  }
  std::optional<ShareNotice> wait_for(const std::function<bool(const ShareNotice&)>& wanted) {
    std::unique_lock lock(mutex_);
    std::optional<ShareNotice> found;
    changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      for (const auto& notice : notices_)
        if (wanted(notice)) {
          found = notice;
          return true;
        }
      return false;
    });
    return found;
  }
  std::size_t count() {
    std::lock_guard lock(mutex_);
    return notices_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ShareNotice> notices_;
};

class ShareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = TemporaryDirectory::create("anchorhold-share-test");
    ASSERT_TRUE(made);
    directory_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    ASSERT_TRUE(fs::create_directory(directory_->path() / "work"));
    std::ofstream(directory_->path() / "work/old") << "old";
  }
  Grant grant(Mode mode) {
    GrantRules rules;
    auto made = resolve_grant(directory_->path() / "work", mode, {}, rules);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  std::unique_ptr<Share> start(Mode mode) {
    ShareSpec spec;
    spec.ledger_folder = directory_->path() / "state/ledger";
    spec.on_notice = notices_.sink();
    auto share = Share::start(grant(mode), std::move(spec));
    EXPECT_TRUE(share) << share.error().message;
    return share ? std::move(*share) : nullptr;
  }
  fs::path socket() const { return directory_->path() / "fs.sock"; }
  bool connects() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket().native().copy(address.sun_path, sizeof address.sun_path - 1);
    return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  static bool runs(pid_t pid) { return pid > 0 && kill(pid, 0) == 0; }

  std::unique_ptr<TemporaryDirectory> directory_;
  Notices notices_;
};

TEST_F(ShareTest, ToolsWorkBeforeThereIsAGuest) {
  auto share = start(Mode::rw);
  ASSERT_TRUE(share);
  FileAccess access;
  access.add(std::move(*share->accessible()));
  ASSERT_TRUE(access.write("/mnt/work/new", "hello"));
  EXPECT_EQ(*access.read("/mnt/work/new", 0, 10), "hello");
  EXPECT_TRUE(fs::exists(directory_->path() / "state/ledger/ledger/journal.db"));
  EXPECT_EQ(share->pid(ShareProcess::reader), -1);
}

TEST_F(ShareTest, AReaderListensForEachGuest) {
  auto share = start(Mode::rw);
  ASSERT_TRUE(share);
  for (int guest = 0; guest < 3; ++guest) {
    auto served = share->serve_guest(socket());
    ASSERT_TRUE(served) << served.error().message;
    pid_t reader = share->pid(ShareProcess::reader);
    EXPECT_TRUE(runs(reader));
    EXPECT_TRUE(connects());
    EXPECT_EQ(fs::status(socket()).permissions(), static_cast<fs::perms>(0600));
    share->end_guest();
    EXPECT_FALSE(runs(reader));
    EXPECT_FALSE(fs::exists(socket()));
  }
  EXPECT_TRUE(runs(share->pid(ShareProcess::keeper)));
}

TEST_F(ShareTest, ReadOnlyHasNoKeeperAndNoLedger) {
  auto share = start(Mode::ro);
  ASSERT_TRUE(share);
  EXPECT_EQ(share->pid(ShareProcess::keeper), -1);
  ASSERT_TRUE(share->serve_guest(socket()));
  FileAccess access;
  access.add(std::move(*share->accessible()));
  EXPECT_EQ(*access.read("/mnt/work/old", 0, 10), "old");
  EXPECT_FALSE(access.write("/mnt/work/old", "new"));
  EXPECT_FALSE(fs::exists(directory_->path() / "state"));
}

TEST_F(ShareTest, NothingIsLeftRunning) {
  auto share = start(Mode::rw);
  ASSERT_TRUE(share);
  ASSERT_TRUE(share->serve_guest(socket()));
  pid_t keeper = share->pid(ShareProcess::keeper), reader = share->pid(ShareProcess::reader);
  FileAccess access;
  access.add(std::move(*share->accessible()));
  share.reset();
  EXPECT_FALSE(runs(keeper));
  EXPECT_FALSE(runs(reader));
  EXPECT_EQ(access.write("/mnt/work/x", "y").error().code, ErrorCode::unavailable);
  // It was asked for: no death is told.
  EXPECT_EQ(notices_.count(), 0u);
}

TEST_F(ShareTest, ADeathIsToldWithItsCause) {
  auto share = start(Mode::rw);
  ASSERT_TRUE(share);
  ASSERT_TRUE(share->serve_guest(socket()));
  for (auto process : {ShareProcess::reader, ShareProcess::keeper}) {
    kill(share->pid(process), SIGKILL);
    auto notice = notices_.wait_for(
        [&](const ShareNotice& n) { return n.kind == ShareNotice::Kind::ended && n.process == process; });
    ASSERT_TRUE(notice) << to_string(process);
    EXPECT_EQ(notice->grant, "work");
    EXPECT_NE(notice->cause.find("signal 9"), std::string::npos) << notice->cause;
    EXPECT_EQ(share->pid(process), -1);
  }
}

TEST_F(ShareTest, RefusalsAreReportedButDoNotFlood) {
  auto share = start(Mode::rw_no_delete);
  ASSERT_TRUE(share);
  auto accessible = share->accessible();
  ASSERT_TRUE(accessible);
  UniqueFd folder(open((directory_->path() / "work").c_str(), O_PATH | O_CLOEXEC));
  int descriptor = folder.get();
  for (int i = 0; i < 3000; ++i)
    EXPECT_EQ(accessible->keeper->ask(make_request(Verb::unlink, "old"), std::span(&descriptor, 1)).error,
              EACCES);
  auto refused = notices_.wait_for([](const ShareNotice& n) { return n.kind == ShareNotice::Kind::report; });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->process, ShareProcess::keeper);
  EXPECT_EQ(refused->report.kind, ReportKind::refused);
  EXPECT_EQ(refused->report.operation, "unlink");
  EXPECT_EQ(refused->report.path, "old");
  share.reset();
  auto suppressed = notices_.wait_for(
      [](const ShareNotice& n) { return n.kind == ShareNotice::Kind::suppressed || n.report.lost > 0; });
  EXPECT_TRUE(suppressed);
  EXPECT_LT(notices_.count(), 3000u);
}

TEST_F(ShareTest, WhatCannotStartSaysWhy) {
  ShareSpec spec;
  spec.ledger_folder = directory_->path() / "work/old/ledger";
  EXPECT_FALSE(Share::start(grant(Mode::rw), spec));
  spec.ledger_folder = directory_->path() / "state";
  spec.hidden = {"*"};
  EXPECT_FALSE(Share::start(grant(Mode::rw), spec));
  spec.hidden.clear();
  ASSERT_TRUE(fs::create_directories(directory_->path() / "state/ledger"));
  std::ofstream(directory_->path() / "state/ledger/journal.db")
      << "this is no database, and longer than a header of one is; "
         "it has more than a hundred bytes in it for sure";
  auto share = Share::start(grant(Mode::rw), spec);
  ASSERT_FALSE(share);
  EXPECT_NE(share.error().message.find("journal.db"), std::string::npos) << share.error().message;
  auto reader = start(Mode::ro);
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->serve_guest(directory_->path() / std::string(120, 's')).error().code,
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace anchorhold::mounts
