// Many connections, slow ones, large ones: what the process holds of them is bounded.
#include <arpa/inet.h>
#include <csignal>
#include <fstream>
#include <sys/resource.h>
#include <sys/socket.h>

#include "bed.h"

namespace anchorhold::testing {
namespace {

using ::testing::StartsWith;

long resident_kib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  return 0;
}

class EgressLoad : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    dns().set("load.example.com", {"44.128.1.1"});
    auto tunnel = rule("load.example.com", policy::EgressAction::allow, {9000});
    tunnel.tunnel_only = true;
    allow(tunnel);
    // What has no rule of its own keeps its name out of the DNS: by address.
    auto address = rule("44.128.1.1", policy::EgressAction::allow, {9000});
    address.tunnel_only = true;
    allow(address);
  }
};

TEST_F(EgressLoad, TenThousandIdleConnectionsHoldLittle) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  // Two of each are here: the guest's end and the server's.
  std::size_t most = std::min<std::size_t>(10'000, (files.rlim_max - 200) / 2);
  if (most < 1000) GTEST_SKIP() << "this machine allows a process " << files.rlim_max << " descriptors";
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(9000);
  inet_pton(AF_INET, "44.128.1.1", &where.sin_addr);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  ASSERT_EQ(listen(listener.get(), 4096), 0);
  start();
  long before = resident_kib(door().pid());
  std::vector<UniqueFd> servers;
  std::vector<Wire> guests;
  for (std::size_t i = 0; i < most; ++i) {
    guests.push_back(connect("44.128.1.1:9000"));
    servers.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(servers.back());
  }
  long each = (resident_kib(door().pid()) - before) * 1024 / static_cast<long>(most);
#ifndef ANCHORHOLD_SANITIZED
  EXPECT_LT(each, 40 * 1024) << "bytes of an idle connection";
#endif
  // All of them still work.
  for (std::size_t i = 0; i < most; i += most / 50) {
    guests[i].write("ping");
    char byte[4];
    ASSERT_EQ(recv(servers[i].get(), byte, 4, MSG_WAITALL), 4);
  }
}

TEST_F(EgressLoad, BeyondTheLimitAConnectionIsClosedAndTheOthersStay) {
  spec().limits.connections = 5;
  Site site("44.128.1.1", 9000, [](Wire& wire) { wire.write(wire.read_some()); });
  start();
  std::vector<Wire> guests;
  for (int i = 0; i < 5; ++i) guests.push_back(connect("44.128.1.1:9000"));
  Wire sixth = open();
  EXPECT_EQ(sixth.read_all(), "");
  guests[0].write("still here");
  EXPECT_EQ(guests[0].read_all(), "still here");
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "more connections than"));
}

TEST_F(EgressLoad, AGuestThatNeverReadsAndALargeTransferStayFlat) {
  constexpr std::size_t total = 256u << 20;
  Site site("44.128.1.1", 9000, [](Wire& wire) {
    const std::string block(1u << 20, 'b');
    if (wire.read_some() == "down") {
      for (std::size_t sent = 0; sent < total && wire.write(block); sent += block.size()) {
      }
    } else {
      wire.write("done");
      while (!wire.read_some().empty()) {
      }
    }
  });
  start();
  Wire reads = connect("44.128.1.1:9000"), never_reads = connect("44.128.1.1:9000");
  long before = resident_kib(door().pid());
  never_reads.write("down");
  reads.write("down");
  std::size_t got = 0;
  for (std::string part; got < total && !(part = reads.read_some()).empty();) got += part.size();
  EXPECT_EQ(got, total);
  Wire up = connect("44.128.1.1:9000");
  const std::string block(1u << 20, 'u');
  up.write("up");
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(up.write(block));
  up.end_writing();
#ifndef ANCHORHOLD_SANITIZED
  EXPECT_LT(resident_kib(door().pid()) - before, 8 * 1024) << "half a GiB has passed";
#endif
}

TEST_F(EgressLoad, APolicyThatIsReplacedUnderLoadLosesNoConnectionThatItAllows) {
  Site site("44.128.1.1", 9000, [](Wire& wire) {
    for (std::string part; !(part = wire.read_some()).empty();) wire.write(part);
  });
  start();
  std::vector<Wire> guests;
  for (int i = 0; i < 50; ++i) guests.push_back(connect("44.128.1.1:9000"));
  for (int round = 0; round < 20; ++round) {
    auto policy = spec().policy;
    for (int i = 0; i < round * 50; ++i)
      policy.rules.user.push_back(rule("n" + std::to_string(i) + ".example.com", policy::EgressAction::deny));
    ASSERT_TRUE(door().replace_policy(policy).has_value());
    for (Wire& guest : guests) {
      ASSERT_TRUE(guest.write("ping"));
      ASSERT_EQ(guest.read_exactly(4), "ping");
    }
  }
}

}  // namespace
}  // namespace anchorhold::testing
