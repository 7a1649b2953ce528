// The reaper with fake QEMUs: programs that only sleep, started under a QEMU's name.
#include "hypervisor/reaper.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"
#include "base/process.h"
#include "reaper/reaping.h"

namespace anchorhold::hypervisor {
namespace {

using std::chrono::milliseconds;
using namespace std::string_literals;
constexpr milliseconds patience(30'000);

class Reaping : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(embed() / "lib"); }
  std::filesystem::path folder() const { return folder_.path(); }
  std::filesystem::path embed() const { return folder() / "embed-1"; }

  // Sleeps under the given program name, with the argument on its command line.
  Child sleeper(const std::string& name, const std::string& argument, bool die_with_parent = true) {
    auto program = folder() / name;
    std::error_code ignored;
    std::filesystem::create_symlink("/bin/sh", program, ignored);
    SpawnSpec spec;
    spec.argv = {program.string(), "-c", "while :; do sleep 1000; done", argument};
    spec.die_with_parent = die_with_parent;
    return std::move(Child::spawn(spec).value());
  }

  TemporaryDirectory folder_ = TemporaryDirectory::create().value();
};

TEST(WorksIn, KnowsQemusAndOurProgramsOfTheFolder) {
  const std::filesystem::path folder = "/run/x/embed-1";
  auto line = [](std::initializer_list<std::string> words) {
    std::string text;
    for (const auto& word : words) text += word + '\0';
    return text;
  };
  EXPECT_TRUE(works_in(line({"/usr/bin/qemu-system-x86_64", "-chardev", "socket,path=/run/x/embed-1/lib/m"}),
                       folder));
  EXPECT_TRUE(works_in(line({"anchorhold-vsockd", "/run/x/embed-1/v"}), folder));
  EXPECT_FALSE(works_in(line({"/usr/bin/qemu-system-x86_64", "/run/x/embed-12/lib"}), folder));
  EXPECT_FALSE(works_in(line({"less", "/run/x/embed-1/log"}), folder));
  EXPECT_FALSE(works_in(line({"vim", "qemu-system-x86_64", "/run/x/embed-1/log"}), folder));
  EXPECT_FALSE(works_in(line({"anchorhold", "run", "/run/x/embed-1/log"}), folder));
  EXPECT_FALSE(works_in("", folder));
}

TEST(StartTime, IsThatOfTheProcess) {
  auto own = start_time_of(getpid());
  ASSERT_TRUE(own);
  EXPECT_EQ(start_time_of(getpid()), own);
  EXPECT_FALSE(start_time_of(999'999'999));
}

TEST_F(Reaping, EndsOnlyWhatWorksInTheFolder) {
  Child qemu = sleeper("qemu-system-fake", (embed() / "lib/x").string());
  Child stranger = sleeper("editor", (embed() / "lib/x").string());
  Child other = sleeper("qemu-system-other", (folder() / "embed-2/lib/x").string());
  EXPECT_TRUE(end_processes(embed(), {}, patience));
  auto status = qemu.wait(patience);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->signal, SIGKILL);
  EXPECT_FALSE(stranger.wait(milliseconds(0)));
  EXPECT_FALSE(other.wait(milliseconds(0)));
}

TEST_F(Reaping, RemovesOnlyAHostsFolder) {
  std::filesystem::create_directory(folder() / "precious");
  EXPECT_FALSE(remove_folder(folder() / "precious"));
  EXPECT_FALSE(remove_folder("embed-relative"));
  EXPECT_TRUE(std::filesystem::exists(folder() / "precious"));
  // What a link in it points to stays.
  std::filesystem::create_symlink(folder() / "precious", embed() / "cache");
  std::ofstream(lock_of(embed())) << "";
  EXPECT_TRUE(remove_folder(embed()));
  EXPECT_FALSE(std::filesystem::exists(embed()));
  EXPECT_FALSE(std::filesystem::exists(lock_of(embed())));
  EXPECT_TRUE(std::filesystem::exists(folder() / "precious"));
}

TEST_F(Reaping, SweepsDeadHostsAndSparesLivingOnes) {
  std::filesystem::create_directories(folder() / "embed-2");
  std::ofstream(lock_of(embed())) << "";
  Child left_over = sleeper("qemu-system-fake", (embed() / "lib/x").string());
  auto living = FileLock::acquire(lock_of(folder() / "embed-2"), FileLock::Wait::no);
  ASSERT_TRUE(living);
  EXPECT_EQ(sweep(folder()), 1u);
  EXPECT_TRUE(left_over.wait(patience));
  EXPECT_FALSE(std::filesystem::exists(embed()));
  EXPECT_TRUE(std::filesystem::exists(folder() / "embed-2"));
}

TEST_F(Reaping, WatchesByStartTime) {
  Child right = sleeper("helper-a", "x");
  Child reused = sleeper("helper-b", "x");
  auto sockets = socket_pair(SOCK_SEQPACKET).value();
  WatchMessage messages[] = {{right.pid(), 0, *start_time_of(right.pid())},
                             {reused.pid(), 0, *start_time_of(reused.pid()) + 1}};
  for (const auto& message : messages)
    ASSERT_TRUE(write_all(sockets.first.get(), std::as_bytes(std::span(&message, 1))));
  sockets.first.reset();
  EXPECT_EQ(run_reaper(std::move(sockets.second), embed()), 0);
  EXPECT_TRUE(right.wait(patience));
  EXPECT_FALSE(reused.wait(milliseconds(0)));
  EXPECT_FALSE(std::filesystem::exists(embed()));
}

TEST_F(Reaping, ProgramEndsEverythingWhenItsHostIsKilled) {
  // The host is a child of this test, killed as by kill -9.
  auto program = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "anchorhold-reaper";
  Child qemu = sleeper("qemu-system-fake", (embed() / "lib/x").string());
  Pipe ready = make_pipe().value();
  pid_t host = fork();
  ASSERT_GE(host, 0);
  if (host == 0) {
    auto sockets = socket_pair(SOCK_SEQPACKET);
    SpawnSpec spec;
    spec.argv = {program.string(), embed().string()};
    spec.descriptors = {{sockets->second.get(), 3}};
    spec.die_with_parent = false;
    auto reaper = Child::spawn(spec);
    pid_t number = reaper ? reaper->pid() : -1;
    (void)write_all(ready.write_end.get(), std::as_bytes(std::span(&number, 1)));
    for (;;) pause();
  }
  pid_t reaper = -1;
  ASSERT_TRUE(read_full(ready.read_end.get(), std::as_writable_bytes(std::span(&reaper, 1))));
  ASSERT_GT(reaper, 0);
  UniqueFd reaper_pidfd(static_cast<int>(syscall(SYS_pidfd_open, reaper, 0)));
  EXPECT_FALSE(qemu.wait(milliseconds(0)));
  kill(host, SIGKILL);
  EXPECT_TRUE(qemu.wait(patience));
  pollfd entry{reaper_pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, static_cast<int>(patience.count())), 1);
  EXPECT_FALSE(std::filesystem::exists(embed()));
}

}  // namespace
}  // namespace anchorhold::hypervisor
