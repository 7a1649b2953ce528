// Many connections, slow ones, large ones: what the process holds of them is bounded.
#include <arpa/inet.h>
#include <csignal>
#include <iostream>
#include <list>
#include <sys/socket.h>

#include "bed.h"
#include "http2_peer.h"
#include "process_facts.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  const rlim_t files = raise_descriptor_limit();
  // Two of each are here, the guest's end and the server's; and two in the process, which keeps some.
  std::size_t most = std::min<std::size_t>(10'000, (files - 400) / 2);
  if (most < 1000) GTEST_SKIP() << "this machine allows a process " << files << " descriptors";
  if (most < 10'000)
    std::cerr << "NOT 10,000 connections but " << most << ": this machine allows a process " << files
              << " descriptors\n";
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(9000);
  inet_pton(AF_INET, "44.128.1.1", &where.sin_addr);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  ASSERT_EQ(listen(listener.get(), 4096), 0);
  start();
  [[maybe_unused]] const long before = status_kib(door().pid(), "VmRSS:");
  std::vector<UniqueFd> servers;
  std::vector<Wire> guests;
  for (std::size_t i = 0; i < most; ++i) {
    guests.push_back(connect("44.128.1.1:9000"));
    ASSERT_FALSE(HasFailure());
    servers.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(servers.back());
  }
#ifndef ANCHORHOLD_SANITIZED
  long each = (status_kib(door().pid(), "VmRSS:") - before) * 1024 / static_cast<long>(most);
  EXPECT_LT(each, 40 * 1024) << "bytes of an idle connection";
#endif
  // All of them still work.
  for (std::size_t i = 0; i < most; i += most / 50) {
    guests[i].write("ping");
    char byte[4];
    ASSERT_EQ(recv(servers[i].get(), byte, 4, MSG_WAITALL), 4);
  }
}

TEST_F(EgressLoad, BeyondTheLimitAConnectionIsToldSoAndTheOthersStay) {
  spec().limits.connections = 5;
  Site site("44.128.1.1", 9000, [](Wire& wire) { wire.write(wire.read_some()); });
  start();
  std::vector<Wire> guests;
  for (int i = 0; i < 5; ++i) guests.push_back(connect("44.128.1.1:9000"));
  Wire sixth = open();
  std::string answer = sixth.read_all();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("x-anchorhold-reason: the guest opened more connections than 5\r\n"));
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
  [[maybe_unused]] const long before = status_kib(door().pid(), "VmRSS:");
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
  EXPECT_LT(status_kib(door().pid(), "VmRSS:") - before, 8 * 1024) << "half a GiB has passed";
#endif
}

// Through TLS from both sides, in both versions of HTTP.
TEST_F(EgressLoad, ALargeTransferThroughAnOpenedConnectionStaysFlat) {
  constexpr std::size_t total = 96u << 20;
  dns().set("large.example.com", {"44.128.1.2"});
  dns().set("large2.example.com", {"44.128.1.3"});
  allow(opened("large.example.com"));
  allow(opened("large2.example.com"));
  Site older(
      "44.128.1.2", 443,
      [](Wire& wire) {
        std::string head = wire.read_until("\r\n\r\n");
        const std::string block(1u << 20, 'b');
        if (head.starts_with("GET")) {
          wire.write("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(total) + "\r\n\r\n");
          for (std::size_t sent = 0; sent < total && wire.write(block); sent += block.size()) {
          }
          return;
        }
        std::size_t got = 0;
        for (std::string part; got < total && !(part = wire.read_some()).empty();) got += part.size();
        std::string answer = std::to_string(got);
        wire.write("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(answer.size()) + "\r\n\r\n" +
                   answer);
      },
      tls("large.example.com"));
  Site newer(
      "44.128.1.3", 443,
      [](Wire& wire) {
        Http2Peer peer(wire, true);
        peer.serve([](const Http2Message& request) {
          Http2Message message;
          message.fields = {{":status", "200"}};
          message.body = request.body.empty() ? std::string(total, 'b') : std::to_string(request.body.size());
          return message;
        });
      },
      tls("large2.example.com", {"h2"}));
  start();
  const std::string ca = door().ca_certificate_pem();
  [[maybe_unused]] const long before = status_kib(door().pid(), "VmRSS:");
  const std::string block(1u << 20, 'u');
  Wire down = connect("large.example.com:443");
  ASSERT_EQ(down.connect_tls(ca, "large.example.com"), "");
  down.write("GET / HTTP/1.1\r\nHost: large.example.com\r\n\r\n");
  EXPECT_THAT(down.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  std::size_t got = 0;
  for (std::string part; got < total && !(part = down.read_some()).empty();) got += part.size();
  EXPECT_EQ(got, total);
  Wire up = connect("large.example.com:443");
  ASSERT_EQ(up.connect_tls(ca, "large.example.com"), "");
  up.write("PUT / HTTP/1.1\r\nHost: large.example.com\r\nContent-Length: " + std::to_string(total) +
           "\r\n\r\n");
  for (std::size_t sent = 0; sent < total; sent += block.size()) ASSERT_TRUE(up.write(block));
  EXPECT_THAT(up.read_response(), HasSubstr(std::to_string(total)));
  Wire wire = connect("large2.example.com:443");
  ASSERT_EQ(wire.connect_tls(ca, "large2.example.com", {"h2"}), "");
  Http2Peer peer(wire, false);
  Http2Fields fields{
      {":method", "GET"}, {":scheme", "https"}, {":authority", "large2.example.com"}, {":path", "/"}};
  EXPECT_EQ(peer.response(peer.request(fields)).body.size(), total);
  fields[0].second = "PUT";
  EXPECT_EQ(peer.response(peer.request(fields, std::string(total, 'u'))).body, std::to_string(total));
#ifndef ANCHORHOLD_SANITIZED
  EXPECT_LT(status_kib(door().pid(), "VmRSS:") - before, 12 * 1024);
#endif
}

// The guest asks for more than it ever reads, in many requests of one connection.
TEST_F(EgressLoad, AGuestThatNeverReadsItsStreamsHoldsAWindowOnly) {
  dns().set("large2.example.com", {"44.128.1.3"});
  allow(opened("large2.example.com"));
  Site newer(
      "44.128.1.3", 443,
      [](Wire& wire) {
        Http2Peer peer(wire, true);
        peer.serve([](const Http2Message&) {
          Http2Message message;
          message.fields = {{":status", "200"}};
          message.body = std::string(2u << 20, 'b');
          return message;
        });
      },
      tls("large2.example.com", {"h2"}));
  start();
  [[maybe_unused]] const long before = status_kib(door().pid(), "VmRSS:");
  std::list<Wire> wires;
  std::list<Http2Peer> peers;
  for (int i = 0; i < 4; ++i) {
    Wire& wire = wires.emplace_back(connect("large2.example.com:443"));
    ASSERT_EQ(wire.connect_tls(door().ca_certificate_pem(), "large2.example.com", {"h2"}), "");
    Http2Peer& peer = peers.emplace_back(wire, false);
    for (int request = 0; request < 10; ++request)
      peer.request(
          {{":method", "GET"}, {":scheme", "https"}, {":authority", "large2.example.com"}, {":path", "/"}});
  }
  // Another one is served meanwhile, and after it the others hold what they hold.
  Wire wire = connect("large2.example.com:443");
  ASSERT_EQ(wire.connect_tls(door().ca_certificate_pem(), "large2.example.com", {"h2"}), "");
  Http2Peer peer(wire, false);
  auto id = peer.request(
      {{":method", "GET"}, {":scheme", "https"}, {":authority", "large2.example.com"}, {":path", "/"}});
  EXPECT_EQ(peer.response(id).body.size(), 2u << 20);
#ifndef ANCHORHOLD_SANITIZED
  EXPECT_LT(status_kib(door().pid(), "VmRSS:") - before, 5 * 3 * 1024);
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
