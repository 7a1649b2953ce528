// What needs a real guest: its limits, its kernel, its clock, its shape. The tests of streams and commands
// run here, too; see CMakeLists.txt.
#include <cstring>
#include <gtest/gtest.h>
#include <signal.h>

#include "agent_under_test.h"
#include "commands.h"

namespace anchorhold::session {
namespace {

using Cause = ExecStatus::Cause;

TEST(Guest, IsSealedAndUnprivileged) {
  HostedAgent agent;
  const auto& info = agent.client().info();
  EXPECT_EQ(info.default_uid, 1000u);
  EXPECT_TRUE(info.tree_kill);
  EXPECT_TRUE(info.memory_limits);
  EXPECT_TRUE(info.process_limits);
  EXPECT_EQ(run(agent.client(), shell("id -un; pwd; cd; pwd; hostname")).out,
            "anchorhold\n/\n/home/anchorhold\nanchorhold\n");
  // No card but the loopback, which works.
  EXPECT_EQ(run(agent.client(), shell("ls -d /sys/class/net/*/device 2>/dev/null | wc -l")).out, "0\n");
  EXPECT_EQ(run(agent.client(), program({"python3", "-c",
                                         "import socket\n"
                                         "s = socket.create_server(('127.0.0.1', 0))\n"
                                         "c = socket.create_connection(s.getsockname())\n"
                                         "s.accept()[0].send(b'x'); print(c.recv(1))"}))
                .out,
            "b'x'\n");
  // The verified root is below, what is written is above, and nobody but root writes it.
  EXPECT_NE(run(agent.client(), shell("touch /usr/x")).status.code, 0);
  ExecSpec as_root = shell("touch /usr/x && echo written");
  as_root.user = "root";
  EXPECT_EQ(run(agent.client(), as_root).out, "written\n");
  EXPECT_EQ(run(agent.client(), shell("ls /init 2>&1 || true; ls -d /proc/1/root/above 2>&1 || true"))
                .out.find("upper"),
            std::string::npos);
}

TEST(Guest, AGibibyteArrivesByteForByte) {
  HostedAgent agent;
  // 1024 numbered copies of one mebibyte of noise: every position is known here.
  constexpr std::size_t block_bytes = 1u << 20, blocks = 1024;
  auto noise = run(agent.client(), shell("head -c 1M /dev/urandom > /tmp/noise && cat /tmp/noise"));
  ASSERT_EQ(noise.out.size(), block_bytes);
  std::string expected(8 + block_bytes, '\0');
  std::memcpy(expected.data() + 8, noise.out.data(), block_bytes);
  std::uint64_t total = 0;
  std::uint64_t wrong = 0;
  auto sink = [&](std::string_view bytes) {
    while (!bytes.empty()) {
      std::uint64_t block = total / expected.size();
      for (int i = 0; i < 8; ++i) expected[static_cast<std::size_t>(i)] = static_cast<char>(block >> (8 * i));
      std::size_t at = total % expected.size();
      std::size_t count = std::min(bytes.size(), expected.size() - at);
      if (std::memcmp(bytes.data(), expected.data() + at, count) != 0) ++wrong;
      total += count;
      bytes.remove_prefix(count);
    }
  };
  auto status = agent.client().run(
      program({"python3", "-c",
               "import sys\n"
               "noise = open('/tmp/noise', 'rb').read()\n"
               "for i in range(1024): sys.stdout.buffer.write(i.to_bytes(8, 'little') + noise)"}),
      {sink, {}});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(status->ok()) << to_string(*status);
  EXPECT_EQ(total, blocks * expected.size());
  EXPECT_EQ(wrong, 0u);
  run(agent.client(), program({"rm", "/tmp/noise"}));
}

TEST(Guest, AForkBombEndsTheCommandOnly) {
  HostedAgent agent;
  ExecSpec bomb = shell("bomb() { bomb | bomb & }; bomb; sleep 1000");
  bomb.process_limit = 200;
  auto outcome = run(agent.client(), bomb);
  EXPECT_EQ(outcome.status.cause, Cause::process_limit) << to_string(outcome.status);
  EXPECT_EQ(run(agent.client(), shell("echo alive")).out, "alive\n");
  // With the default limits either processes or memory end first.
  auto unlimited = run(agent.client(), shell("bomb() { bomb | bomb & }; bomb; sleep 1000"));
  EXPECT_TRUE(unlimited.status.cause == Cause::process_limit ||
              unlimited.status.cause == Cause::out_of_memory)
      << to_string(unlimited.status);
  EXPECT_EQ(run(agent.client(), shell("echo alive")).out, "alive\n");
  EXPECT_EQ(run(agent.client(), shell("ls /sys/fs/cgroup/exec | grep -c h-")).out, "1\n");
}

TEST(Guest, AMemoryHogEndsTheCommandOnly) {
  HostedAgent agent;
  const char* hog = "x = []\nwhile True: x.append(bytearray(1 << 20))";
  auto bystander = agent.client().start_background({shell("sleep 1000"), {}});
  ASSERT_TRUE(bystander);
  ExecSpec limited = program({"python3", "-c", hog});
  limited.memory_limit = ByteSize::mib(100);
  auto outcome = run(agent.client(), limited);
  EXPECT_EQ(outcome.status.cause, Cause::out_of_memory) << to_string(outcome.status);
  EXPECT_EQ(shell_exit_code(outcome.status), 137);
  // Through a shell that would outlive its child.
  auto unlimited = run(agent.client(),
                       shell("python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'; echo survived"));
  EXPECT_EQ(unlimited.status.cause, Cause::out_of_memory) << to_string(unlimited.status);
  EXPECT_EQ(unlimited.out, "");
  auto execs = agent.client().list_execs();
  ASSERT_TRUE(execs);
  ASSERT_EQ(execs->size(), 1u);
  EXPECT_FALSE((*execs)[0].status) << "the bystander was killed";
  EXPECT_FALSE(agent.client().lost());
}

TEST(Guest, AFullScratchIsAnErrorOfTheCommand) {
  HostedAgent agent;
  auto outcome = run(agent.client(), shell("head -c 2G /dev/zero > /tmp/full; echo $?; rm /tmp/full"));
  EXPECT_EQ(outcome.out, "1\n");
  EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
  EXPECT_EQ(run(agent.client(), shell("echo alive")).out, "alive\n");
}

TEST(Guest, KillTakesWhatBecameADaemon) {
  HostedAgent agent;
  auto exec = agent.client().start(
      shell("setsid sh -c 'setsid sleep 1000 & setsid sleep 1000 &' ; env -i setsid sleep 1000 & "
            "while [ $(pgrep -xc sleep) -lt 3 ]; do :; done; echo up; sleep 1000"));
  ASSERT_TRUE(exec);
  ASSERT_TRUE((*exec)->read(OutputStream::standard_output));
  ASSERT_TRUE((*exec)->kill());
  EXPECT_EQ((*exec)->wait()->cause, Cause::killed);
  // The answer comes when the tree is gone, not earlier.
  EXPECT_EQ(run(agent.client(), shell("pgrep -xc sleep || true")).out, "0\n");
}

TEST(Guest, ClockFollowsTheHost) {
  HostedAgent agent;
  auto guest_seconds = [&] { return std::stoll(run(agent.client(), shell("date +%s")).out); };
  auto seconds = [](WallTime time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
  };
  constexpr std::int64_t slack = 60;  // a busy machine; the steps are far larger
  auto now = std::chrono::system_clock::now();
  EXPECT_NEAR(static_cast<double>(guest_seconds()), static_cast<double>(seconds(now)), slack);
  for (auto step : {std::chrono::hours(24 * 365), std::chrono::hours(-24 * 30)}) {
    ASSERT_TRUE(agent.client().set_clock(std::chrono::system_clock::now() + step));
    EXPECT_NEAR(static_cast<double>(guest_seconds()),
                static_cast<double>(seconds(std::chrono::system_clock::now() + step)), slack);
  }
  auto ahead = agent.client().set_clock(std::chrono::system_clock::now());
  ASSERT_TRUE(ahead);
  EXPECT_LT(*ahead, std::chrono::hours(-24 * 29));
}

TEST(Guest, StatisticsAreTrue) {
  HostedAgent agent;
  auto statistics = agent.client().statistics();
  ASSERT_TRUE(statistics);
  EXPECT_GT(statistics->memory_total.bytes, ByteSize::mib(900).bytes);
  EXPECT_LT(statistics->memory_available.bytes, statistics->memory_total.bytes);
  EXPECT_GT(statistics->scratch_total.bytes, ByteSize::mib(200).bytes);
  EXPECT_GT(statistics->uptime.count(), 0);
  EXPECT_GT(statistics->processes, 1u);
  EXPECT_LT(statistics->agent_memory.bytes, ByteSize::mib(64).bytes);
}

TEST(Guest, MountsOnlyWhatThereIs) {
  HostedAgent agent;
  auto missing = agent.client().mount("grant-none", "none", GuestClient::MountMode::read_only);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("grant-none"), std::string::npos);
  EXPECT_EQ(run(agent.client(), shell("ls /mnt")).out, "");
  auto wrong = agent.client().mount("tag", "../etc", GuestClient::MountMode::read_only);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid_argument);
}

TEST(Guest, OrdinaryProcessesCannotPlayTheAgent) {
  HostedAgent agent;
  // Nobody in the guest serves the contract to others, and the host's port takes one stream only.
  auto outcome = run(agent.client(), program({"python3", "-c",
                                              "import socket\n"
                                              "for cid in (1, 3):\n"
                                              "  s = socket.socket(socket.AF_VSOCK)\n"
                                              "  try: s.connect((cid, 1024)); print('connected', cid)\n"
                                              "  except OSError: print('refused', cid)"}));
  EXPECT_EQ(outcome.out, "refused 1\nrefused 3\n");
  EXPECT_EQ(run(agent.client(), shell("kill -9 1 2>&1; echo alive")).out.find("alive"),
            run(agent.client(), shell("kill -9 1 2>&1; echo alive")).out.size() - 6);
}

}  // namespace
}  // namespace anchorhold::session
