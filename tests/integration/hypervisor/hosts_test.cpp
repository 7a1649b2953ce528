// Hosts as processes of their own: several at once, and killed ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "base/process.h"
#include "hypervisor/tiny_guest.h"
#include "reaper/reaping.h"

namespace anchorhold::hypervisor {
namespace {

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    if (test_kernel().empty()) GTEST_SKIP() << "ANCHORHOLD_TEST_IMAGE names no image: no guest is started";
    write_initrd(std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "../tests/tiny_init", folder() / "initrd");
  }
  std::filesystem::path folder() const { return folder_.path(); }
  std::filesystem::path console(const std::string& name) const { return folder() / (name + ".console"); }

  Child start_host(const std::string& name) {
    SpawnSpec spec;
    auto programs = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR);
    spec.argv = {(programs / "../tests/hypervisor_host").string(),
                 (folder() / "r").string(),
                 (programs / "../tests/cache").string(),
                 test_kernel().string(),
                 (folder() / "initrd").string(),
                 console(name).string(),
                 "stay",
                 "emulation"};
    return std::move(Child::spawn(spec).value());
  }
  bool is_up(const std::string& name) {
    return eventually([&] { return last_console(name).find("tiny: up") != std::string::npos; });
  }
  std::string last_console(const std::string& name) {
    auto text = read_file(console(name), 1 << 21);
    return text ? *text : "";
  }

  TemporaryDirectory folder_ = TemporaryDirectory::create("ah").value();
};

TEST_F(Hosts, OfOneUserRunAtOnceAndTheirGuestsEndWithThem) {
  Child first = start_host("first"), second = start_host("second");
  ASSERT_TRUE(is_up("first")) << last_console("first");
  ASSERT_TRUE(is_up("second")) << last_console("second");
  ASSERT_EQ(qemu_processes(folder() / "r").size(), 2u);

  first.kill(SIGKILL);
  EXPECT_TRUE(eventually([&] { return qemu_processes(folder() / "r").size() == 1; }));
  auto embed_folders = [&] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder() / "r"))
      count += entry.is_directory();
    return count;
  };
  EXPECT_TRUE(eventually([&] { return embed_folders() == 1; }));
  EXPECT_FALSE(second.wait(std::chrono::milliseconds(0))) << "the other host goes on";

  second.kill(SIGKILL);
  EXPECT_TRUE(eventually([&] { return qemu_processes(folder() / "r").empty() && embed_folders() == 0; }));
}

TEST_F(Hosts, KilledWhileStartingLeaveNothing) {
  Child host = start_host("early");
  // QEMU is there, its start may not be over.
  ASSERT_TRUE(eventually([&] { return !qemu_processes(folder() / "r").empty(); }));
  host.kill(SIGKILL);
  host.wait();
  EXPECT_TRUE(eventually([&] { return qemu_processes(folder() / "r").empty(); }));
  EXPECT_TRUE(eventually([&] { return std::filesystem::is_empty(folder() / "r"); }));
}

TEST_F(Hosts, SweepWhatAHostLeftThatDiedWithItsReaper) {
  auto left = folder() / "r" / "embed-dead";
  std::filesystem::create_directories(left / "lib");
  { auto lock = FileLock::acquire(lock_of(left), FileLock::Wait::no); }
  Child host = start_host("next");
  ASSERT_TRUE(is_up("next")) << last_console("next");
  EXPECT_FALSE(std::filesystem::exists(left));
}

}  // namespace
}  // namespace anchorhold::hypervisor
