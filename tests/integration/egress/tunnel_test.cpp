// CONNECT and what comes after it when nothing is opened.
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <future>
#include <thread>

#include "bed.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class EgressTunnel : public EgressBed {};

TEST_F(EgressTunnel, AnAllowedNameIsReachedWithTheServersOwnCertificate) {
  dns().set("example.com", {"44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("site"), tls("example.com"));
  allow(rule("example.com"));
  start();
  Wire wire = connect("example.com:443");
  ASSERT_EQ(wire.connect_tls(authority().pem(), "example.com"), "");
  EXPECT_THAT(wire.peer_certificate_name(), HasSubstr("Test Authority"));
  wire.write("GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n");
  EXPECT_THAT(wire.read_response(), HasSubstr("site GET /a example.com 0"));
  auto event = sink().wait_for("anchorhold.egress.allow", "egress.host=example.com");
  ASSERT_TRUE(event);
  EXPECT_THAT(RecordingSink::text_of(*event), HasSubstr("egress.address=44.128.1.1"));
}

TEST_F(EgressTunnel, TheProcessIsSealed) {
  start();
  std::ifstream file("/proc/" + std::to_string(door().pid()) + "/status");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(text, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(text, HasSubstr("CapEff:\t0000000000000000"));
  EXPECT_THAT(text, HasSubstr("CapPrm:\t0000000000000000"));
}

TEST_F(EgressTunnel, AnEmptyPolicyDenies) {
  dns().set("example.com", {"44.128.1.1"});
  start();
  EXPECT_THAT(refused_connect("example.com:443"), StartsWith("403 no rule names example.com:443"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "egress.host=example.com"));
  EXPECT_EQ(dns().asked("example.com"), 0) << "a name that is denied must not be resolved";
}

TEST_F(EgressTunnel, NamesThatAreNoneAreRefusedAndRecorded) {
  allow(rule("*.example.com"));
  start();
  for (const char* target : {"exa mple.com:443", "example.com", "example.com:0", "example.com:70000",
                             "a..example.com:443", "%61.example.com:443", "user@www.example.com:443",
                             "www.example.com:443:443", "[::1:443", "www_.example.com:443"}) {
    Wire wire = open();
    wire.write("CONNECT " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(wire.read_all(), StartsWith("HTTP/1.1 400 ")) << target;
  }
  EXPECT_EQ(sink().count("anchorhold.egress.deny"), 10);
  EXPECT_TRUE(dns().questions().empty());
}

TEST_F(EgressTunnel, AddressesThatAreNotTheInternetsAreRefusedForANameInEverySpelling) {
  const std::pair<const char*, std::vector<std::string>> names[] = {
      {"loop.example.com", {"127.0.0.1"}},
      {"loop6.example.com", {"::1"}},
      {"private.example.com", {"10.1.2.3"}},
      {"link.example.com", {"169.254.169.254"}},
      {"meta6.example.com", {"fd00:ec2::254"}},
      {"nat.example.com", {"100.64.0.1"}},
      {"mapped.example.com", {"::ffff:127.0.0.1"}},
      {"hidden.example.com", {"64:ff9b::7f00:1"}},
      {"own.example.com", {"44.129.0.1"}},
      {"zero.example.com", {"0.0.0.0"}},
      {"mixed.example.com", {"44.128.1.1", "192.168.0.1"}},
  };
  for (const auto& [name, addresses] : names) dns().set(name, addresses);
  dns().set_name("alias.example.com", {.alias = "loop.example.com"});
  allow(rule("*.example.com"));
  start();
  for (const auto& [name, addresses] : names)
    EXPECT_THAT(refused_connect(std::string(name) + ":443"), StartsWith("403 ")) << name;
  EXPECT_THAT(refused_connect("alias.example.com:443"), HasSubstr("leads to 127.0.0.1"));
  EXPECT_THAT(refused_connect("own.example.com:443"), HasSubstr("host's own"));
  EXPECT_EQ(sink().count("anchorhold.egress.allow"), 0);
}

TEST_F(EgressTunnel, AddressesWrittenByTheGuestAreRefusedInEverySpelling) {
  allow(rule("*.example.com"));
  start();
  for (const char* target : {"127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]",
                             "[::ffff:127.0.0.1]", "169.254.169.254", "0xa9fea9fe", "[fd00:ec2::254]",
                             "10.0.0.1", "[64:ff9b::a9fe:a9fe]", "0.0.0.0", "localhost"}) {
    std::string answer;
    Wire wire = connect(std::string(target) + ":80", &answer);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 403") || answer.starts_with("HTTP/1.1 400")) << target << answer;
  }
}

TEST_F(EgressTunnel, ARuleThatNamesAnAddressOpensIt) {
  Site site("44.128.1.1", 443, echo_server("by address"), tls("44.128.1.1"));
  allow(rule("44.128.1.0/24"));
  start();
  Wire wire = connect("44.128.1.1:443");
  ASSERT_EQ(wire.connect_tls(authority().pem(), ""), "") << "a client sends no name for an address";
  wire.write("GET / HTTP/1.1\r\nHost: 44.128.1.1\r\n\r\n");
  EXPECT_THAT(wire.read_response(), HasSubstr("by address"));
}

TEST_F(EgressTunnel, TheAddressThatWasJudgedIsTheOneThatIsDialled) {
  // The second answer would lead to this host.
  dns().set_name("rebind.example.com", {.addresses = {"44.128.1.1"}, .next = {"127.0.0.1"}});
  Site site("44.128.1.1", 443, echo_server("judged"), tls("rebind.example.com"));
  allow(rule("*.example.com"));
  start();
  Wire wire = connect("rebind.example.com:443");
  ASSERT_EQ(wire.connect_tls(authority().pem(), "rebind.example.com"), "");
  wire.write("GET / HTTP/1.1\r\nHost: rebind.example.com\r\n\r\n");
  EXPECT_THAT(wire.read_response(), HasSubstr("judged"));
  EXPECT_EQ(dns().asked("rebind.example.com"), 1) << "one resolution for one dial";
  EXPECT_THAT(refused_connect("rebind.example.com:443"), HasSubstr("leads to 127.0.0.1"))
      << "each dial is judged";
}

TEST_F(EgressTunnel, ADeadAddressIsPassedOver) {
  dns().set("two.example.com", {"44.128.1.200", "44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("second"), tls("two.example.com"));
  allow(rule("*.example.com"));
  start();
  Wire wire = connect("two.example.com:443");
  ASSERT_EQ(wire.connect_tls(authority().pem(), "two.example.com"), "");
}

TEST_F(EgressTunnel, NamesThatDoNotResolveSayWhy) {
  dns().set_name("broken.example.com", {.broken = true});
  dns().set_name("silent.example.com", {.silent = true});
  allow(rule("*.example.com"));
  spec().resolver.timeout = std::chrono::milliseconds(200);
  spec().resolver.attempts = 1;
  start();
  EXPECT_THAT(refused_connect("none.example.com:443"), StartsWith("502 there is no address"));
  EXPECT_THAT(refused_connect("broken.example.com:443"), StartsWith("502 broken.example.com could not"));
  EXPECT_THAT(refused_connect("silent.example.com:443"), StartsWith("502 silent.example.com could not"));
}

// What a guest asks for while the policy or the nameservers change is answered by those in force then.
class EgressLookup : public EgressTunnel {
 protected:
  // A connection whose name this server is being asked for.
  Wire looked_up(DnsServer& server) {
    const int before = server.asked("slow.example.com");
    Wire wire = open();
    wire.write("CONNECT slow.example.com:443 HTTP/1.1\r\nHost: slow.example.com:443\r\n\r\n");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (server.asked("slow.example.com") == before && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_GT(server.asked("slow.example.com"), before);
    return wire;
  }
  void SetUp() override {
    EgressTunnel::SetUp();
    if (IsSkipped()) return;
    dns().set_name("slow.example.com", {.silent = true});
    allow(rule("*.example.com"));
  }
};

TEST_F(EgressLookup, GoesOnWhenThePolicyChanges) {
  Site site("44.128.1.1", 443, echo_server("site"), tls("slow.example.com"));
  spec().resolver.timeout = std::chrono::milliseconds(500);
  spec().resolver.attempts = 6;
  start();
  Wire wire = looked_up(dns());
  auto policy = spec().policy;
  policy.rules.user.push_back(rule("denied.example.com", policy::EgressAction::deny));
  ASSERT_TRUE(door().replace_policy(policy).has_value());
  EXPECT_THAT(refused_connect("denied.example.com:443"), StartsWith("403 denied.example.com:443 is denied"));
  dns().set("slow.example.com", {"44.128.1.1"});
  EXPECT_THAT(wire.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(sink().count("anchorhold.policy.reject"), 0);
}

TEST_F(EgressLookup, AsksTheNameserversThatAreInForce) {
  DnsServer other("44.128.0.54");
  other.set("slow.example.com", {"44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("site"), tls("slow.example.com"));
  spec().resolver.timeout = std::chrono::seconds(100);
  spec().resolver.attempts = 1;
  start();
  Wire wire = looked_up(dns());
  auto resolver = spec().resolver;
  resolver.servers = {"44.128.0.54"};
  ASSERT_TRUE(door().replace_upstream(resolver, {}).has_value());
  EXPECT_THAT(wire.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(dns().asked("slow.example.com"), 1);

  other.set_name("slow.example.com", {.silent = true});
  Wire next = looked_up(other);
  resolver.servers = {};
  ASSERT_TRUE(door().replace_upstream(resolver, {}).has_value());
  EXPECT_THAT(next.read_until("\r\n\r\n"), HasSubstr("the host has no nameserver"));
  EXPECT_EQ(sink().count("anchorhold.policy.reject"), 0);
}

TEST_F(EgressTunnel, TheNameInsideMustBeTheNameOfTheConnect) {
  dns().set("example.com", {"44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("site"), tls("other.example.com"));
  allow(rule("example.com"));
  start();
  Wire other = connect("example.com:443");
  EXPECT_THAT(other.connect_tls(authority().pem(), "other.example.com"), HasSubstr("alert access denied"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "the TLS connection is for other.example.com"));
  Wire nameless = connect("example.com:443");
  EXPECT_THAT(nameless.connect_tls(authority().pem(), ""), HasSubstr("alert access denied"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "does not say that it is for example.com"));
}

TEST_F(EgressTunnel, EachPortSpeaksItsOwnProtocol) {
  dns().set("example.com", {"44.128.1.1"});
  Site secure("44.128.1.1", 443, echo_server("secure"), tls("example.com"));
  Site plain("44.128.1.1", 80, echo_server("plain"));
  allow(rule("example.com"));
  start();
  Wire http_to_443 = connect("example.com:443");
  http_to_443.write("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
  EXPECT_THAT(http_to_443.read_response(), HasSubstr("only TLS belongs on port 443"));
  Wire tls_to_80 = connect("example.com:80");
  EXPECT_THAT(tls_to_80.connect_tls(authority().pem(), "example.com"), HasSubstr("alert access denied"));
  Wire ssh = connect("example.com:443");
  ssh.write("SSH-2.0-OpenSSH_9.2\r\n");
  EXPECT_THAT(ssh.read_all(), HasSubstr("403"));
  Wire plain_to_80 = connect("example.com:80");
  plain_to_80.write("GET /p HTTP/1.1\r\nHost: example.com\r\n\r\n");
  EXPECT_THAT(plain_to_80.read_response(), HasSubstr("plain GET /p"));
}

TEST_F(EgressTunnel, AServerMaySpeakFirstWhereNothingIsEverOpened) {
  dns().set("mail.example.com", {"44.128.1.2"});
  Site site("44.128.1.2", 2525, [](Wire& wire) {
    wire.write("220 hello\r\n");
    wire.write("you said " + wire.read_until("\n"));
  });
  auto tunnel = rule("mail.example.com", policy::EgressAction::allow, {2525});
  tunnel.tunnel_only = true;
  allow(tunnel);
  start();
  Wire wire = connect("mail.example.com:2525");
  EXPECT_EQ(wire.read_until("\n"), "220 hello\r\n");
  wire.write("EHLO x\n");
  EXPECT_EQ(wire.read_until("\n"), "you said EHLO x\n");
}

TEST_F(EgressTunnel, BothHalvesCloseOnTheirOwn) {
  dns().set("half.example.com", {"44.128.1.2"});
  Site site("44.128.1.2", 2525, [](Wire& wire) {
    std::string all = wire.read_all();  // until the guest has ended its half
    wire.write("got " + std::to_string(all.size()));
  });
  auto tunnel = rule("half.example.com", policy::EgressAction::allow, {2525});
  tunnel.tunnel_only = true;
  allow(tunnel);
  start();
  Wire wire = connect("half.example.com:2525");
  wire.write(std::string(300'000, 'x'));
  wire.end_writing();
  EXPECT_EQ(wire.read_all(), "got 300000");
}

TEST_F(EgressTunnel, AHalfThatIsLeftOpenForNothingIsEnded) {
  dns().set("half.example.com", {"44.128.1.2"});
  std::promise<void> ended;
  Site site("44.128.1.2", 2525, [&](Wire& wire) {
    wire.write("all of it");
    wire.end_writing();
    wire.read_all();  // of a guest that says nothing and does not close
    ended.set_value();
  });
  auto tunnel = rule("half.example.com", policy::EgressAction::allow, {2525});
  tunnel.tunnel_only = true;
  allow(tunnel);
  spec().limits.half_closed = std::chrono::milliseconds(300);
  start();
  Wire wire = connect("half.example.com:2525");
  EXPECT_EQ(wire.read_all(), "all of it");
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
}

// Every order in which the two halves of many tunnels fill up, end and are cut.
TEST_F(EgressTunnel, ManyTunnelsThatFillUpAndEndLoseNothing) {
  dns().set("many.example.com", {"44.128.1.2"});
  Site site("44.128.1.2", 2525, [](Wire& wire) {
    // As much comes back as was sent, while more is sent.
    for (std::string part; !(part = wire.read_some()).empty();)
      if (!wire.write(part)) return;
  });
  auto tunnel = rule("many.example.com", policy::EgressAction::allow, {2525});
  tunnel.tunnel_only = true;
  allow(tunnel);
  start();
  std::vector<std::thread> guests;
  std::atomic<int> whole{0};
  for (int i = 0; i < 24; ++i)
    guests.emplace_back([&, i] {
      Wire wire = connect("many.example.com:2525");
      if (i % 6 == 5) return;  // closes at once
      const std::string block(static_cast<std::size_t>(1 + i * 7919), static_cast<char>('a' + i));
      std::size_t got = 0, sent = 0;
      std::thread reader([&] {
        for (std::string part; !(part = wire.read_some()).empty(); got += part.size())
          if (part.find_first_not_of(block[0]) != std::string::npos) return;
      });
      for (int turn = 0; turn < 40; ++turn, sent += block.size())
        EXPECT_TRUE(wire.write(block)) << std::strerror(errno);
      wire.end_writing();
      reader.join();
      EXPECT_EQ(got, sent) << i;
      if (got == sent) ++whole;
    });
  for (auto& guest : guests) guest.join();
  EXPECT_EQ(whole, 20);
}

TEST_F(EgressTunnel, AHeadThatNeverEndsIsEnded) {
  spec().limits.head = std::chrono::milliseconds(300);
  start();
  Wire wire = open();
  wire.write("CONNECT example.com:443 HTTP/1.1\r\nX: ");
  EXPECT_EQ(wire.read_all(), "");
}

TEST_F(EgressTunnel, AHelloThatNeverEndsIsEnded) {
  dns().set("example.com", {"44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("site"), tls("example.com"));
  allow(rule("example.com"));
  spec().limits.head = std::chrono::milliseconds(300);
  start();
  Wire wire = connect("example.com:443");
  wire.write(std::string_view("\x16\x03\x01\x02\x00\x01", 6));
  EXPECT_EQ(wire.read_all(), "");
}

TEST_F(EgressTunnel, AChangedPolicyCutsWhatItDoesNotAllow) {
  dns().set("example.com", {"44.128.1.1"});
  dns().set("other.example.com", {"44.128.1.2"});
  Site site("44.128.1.1", 443, echo_server("site"), tls("example.com"));
  Site stays("44.128.1.2", 443, echo_server("stays"), tls("other.example.com"));
  allow(rule("example.com"));
  allow(rule("other.example.com"));
  start();
  Wire cut = connect("example.com:443"), kept = connect("other.example.com:443");
  ASSERT_EQ(cut.connect_tls(authority().pem(), "example.com"), "");
  ASSERT_EQ(kept.connect_tls(authority().pem(), "other.example.com"), "");
  auto policy = spec().policy;
  policy.rules.user.push_back(rule("example.com", policy::EgressAction::deny));
  ASSERT_TRUE(door().replace_policy(policy).has_value());
  EXPECT_EQ(cut.read_all(), "");
  auto event = sink().wait_for("anchorhold.egress.deny", "egress.cut=true");
  ASSERT_TRUE(event);
  EXPECT_THAT(RecordingSink::text_of(*event), HasSubstr("example.com:443 is denied"));
  kept.write("GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n");
  EXPECT_THAT(kept.read_response(), HasSubstr("stays"));
}

TEST_F(EgressTunnel, WhatCannotBeRecordedIsNotAllowed) {
  dns().set("example.com", {"44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("site"), tls("example.com"));
  allow(rule("example.com"));
  start();
  sink().refuse_from_now_on();
  EXPECT_THAT(refused_connect("example.com:443"), HasSubstr("must be recorded"));
  EXPECT_EQ(site.connections(), 0);
}

TEST_F(EgressTunnel, AKilledProcessCutsEverythingAndComesBackWithItsPolicy) {
  dns().set("example.com", {"44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("site"), tls("example.com"));
  allow(rule("example.com"));
  std::promise<std::string> restarted;
  host().restarted = [&](const std::string& ca) { restarted.set_value(ca); };
  start();
  std::string first_ca = door().ca_certificate_pem();
  Wire cut = connect("example.com:443");
  ASSERT_EQ(cut.connect_tls(authority().pem(), "example.com"), "");
  kill(door().pid(), SIGKILL);
  EXPECT_EQ(cut.read_all(), "");
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.fail", "signal"));
  auto ca = restarted.get_future();
  ASSERT_EQ(ca.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_NE(ca.get(), first_ca) << "a key lives and dies with its process";
  EXPECT_THAT(refused_connect("denied.example.com:443"), StartsWith("403"));
  Wire again = connect("example.com:443");
  EXPECT_EQ(again.connect_tls(authority().pem(), "example.com"), "");
}

TEST_F(EgressTunnel, AStreamThatComesBetweenTwoProcessesWaitsForThePolicy) {
  start();
  kill(door().pid(), SIGKILL);
  // Whether it is taken by the old process (and cut) or by the new one, nothing is allowed.
  Wire wire = open();
  wire.write("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
  std::string answer = wire.read_all();
  EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 403")) << answer;
}

}  // namespace
}  // namespace anchorhold::testing
