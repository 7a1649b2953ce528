// Folders that are granted while a session is open. What a running guest does with them, tests with real
// guests show; here its devices are nobody's.
#include <fstream>
#include <future>
#include <signal.h>

#include "session_fixture.h"

namespace anchorhold::session {
namespace {

using Names = std::vector<std::string>;

class GrantTest : public SessionTest {
 protected:
  GrantTest() {
    for (const char* name : {"config", "cache"}) std::filesystem::create_directory(folder_.path() / name);
    setenv("XDG_CONFIG_HOME", (folder_.path() / "config").c_str(), 1);
    setenv("XDG_CACHE_HOME", (folder_.path() / "cache").c_str(), 1);
  }
  // The kernel keeps 15 bytes of a program's name (proc(5), comm).
  static pid_t child_named(const std::string& name) {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(thread.path() / "children");
      for (pid_t pid; file >> pid;) {
        std::string comm;
        std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), comm);
        if (comm == name) return pid;
      }
    }
    return 0;
  }
  std::filesystem::path make(const std::string& name) {
    auto path = folder_.path() / "home" / name;
    std::filesystem::create_directories(path);
    std::ofstream(path / "file") << name;
    return path;
  }
};

TEST_F(GrantTest, WithoutAGuestItIsThereForTheHostsToolsAndTheNextGuest) {
  hypervisor::MachineSpec seen;
  when_running = [&](const hypervisor::MachineSpec& machine) { seen = machine; };  // no agent: none is needed
  guest_spec_.boot_limit = std::chrono::milliseconds(1);
  auto session = open_session();
  auto report = make("a/report"), other = make("b/report");
  auto first = session->grant(report, mounts::Mode::rw);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ((*first)->guest_path(), "/mnt/report");
  auto second = session->grant(other / "file", mounts::Mode::ro);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*second)->guest_path(), "/mnt/file/file");
  auto third = session->grant(other, mounts::Mode::ro);
  ASSERT_TRUE(third) << third.error().message;
  EXPECT_EQ((*third)->guest_path(), "/mnt/report-2");
  EXPECT_EQ(session->grants().size(), 3u);
  EXPECT_EQ(session->default_directory(), "/mnt/report");
  EXPECT_EQ(event_names(),
            (Names{"anchorhold.mount.grant", "anchorhold.mount.grant", "anchorhold.mount.grant"}));
  EXPECT_EQ(*session->files().read("/mnt/report-2/file", 0, 100), "b/report");
  ASSERT_TRUE(session->files().write("/mnt/report/new", "text"));
  EXPECT_EQ(session->files().write("/mnt/report-2/new", "x").error().code, ErrorCode::permission_denied);
  EXPECT_FALSE(session->guest());
  ASSERT_EQ(seen.shares.size(), 3 + guest_spec_.spare_devices);
  EXPECT_EQ(seen.shares[0].tag, "grant-report");
}

TEST_F(GrantTest, WhatIsRefusedChangesNothing) {
  auto session = open_session();
  auto inner = make("a/inner");
  ASSERT_TRUE(session->grant(inner, mounts::Mode::rw_no_delete));
  struct Case {
    std::filesystem::path path;
    mounts::Mode mode;
    ErrorCode code;
  };
  for (const auto& c : std::vector<Case>{
           {inner, mounts::Mode::rw_no_delete, ErrorCode::already_exists},
           {inner.parent_path(), mounts::Mode::rw, ErrorCode::permission_denied},
           {folder_.path() / "nothing", mounts::Mode::ro, ErrorCode::not_found},
           {folder_.path() / "state", mounts::Mode::ro, ErrorCode::permission_denied},
           {"/", mounts::Mode::ro, ErrorCode::permission_denied},
           {"/etc", mounts::Mode::ro, ErrorCode::permission_denied},
           {"/dev/null", mounts::Mode::ro, ErrorCode::invalid_argument},
       }) {
    auto granted = session->grant(c.path, c.mode);
    ASSERT_FALSE(granted) << c.path;
    EXPECT_EQ(granted.error().code, c.code) << c.path << ": " << granted.error().message;
    EXPECT_EQ(session->grants().size(), 1u);
  }
  EXPECT_EQ(event_names(), (Names{"anchorhold.mount.grant"}));
  // A folder above with as strict a mode is none of these.
  EXPECT_TRUE(session->grant(inner.parent_path(), mounts::Mode::ro));
}

TEST_F(GrantTest, ARunningGuestWithoutADeviceForItIsToldOf) {
  guest_spec_.spare_devices = 0;
  auto session = open_session();
  ASSERT_TRUE(session->guest());
  auto granted = session->grant(make("report"), mounts::Mode::rw);
  ASSERT_FALSE(granted);
  EXPECT_EQ(granted.error().code, ErrorCode::resource_exhausted);
  EXPECT_FALSE(granted.error().hint.empty());
  EXPECT_TRUE(session->grants().empty());
  EXPECT_TRUE(event_names("anchorhold.mount").empty());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "state/anchorhold/ledgers/session-1/report"));
}

TEST_F(GrantTest, AGuestThatDoesNotTakeItLeavesNothingGranted) {
  auto session = open_session();
  ASSERT_TRUE(session->guest());
  // Nobody has set up the devices of this guest.
  auto granted = session->grant(make("report"), mounts::Mode::rw);
  ASSERT_FALSE(granted);
  EXPECT_TRUE(session->grants().empty());
  EXPECT_FALSE(session->files().stat("/mnt/report"));
  EXPECT_EQ(event_names("anchorhold.mount"), (Names{"anchorhold.mount.grant", "anchorhold.mount.revoke"}));
  EXPECT_FALSE(cause_of_last("anchorhold.mount.revoke").empty());
  // The guest goes on, and so does the session.
  EXPECT_FALSE((*session->guest())->lost());
}

TEST_F(GrantTest, TheEndOfTheSpareDevicesEndsTheGuestWithTheCause) {
  auto session = open_session();
  auto guest = *session->guest();
  std::promise<std::string> lost;
  guest->on_lost([&](const std::string& cause) { lost.set_value(cause); });
  const auto spares = child_named("anchorhold-spar");
  ASSERT_GT(spares, 0);
  kill(spares, SIGKILL);
  EXPECT_NE(lost.get_future().get().find("spare devices"), std::string::npos);
}

TEST_F(GrantTest, AfterTheEndNothingIsGranted) {
  auto session = open_session();
  session->close();
  auto granted = session->grant(make("report"), mounts::Mode::ro);
  ASSERT_FALSE(granted);
  EXPECT_EQ(granted.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace anchorhold::session
