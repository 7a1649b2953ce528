// What the process holds for a connection that it has opened, and in which nothing happens any more.
#include <iostream>
#include <list>
#include <vector>

#include "bed.h"
#include "http2_peer.h"
#include "process_facts.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t first_ones = 100;  // pay for what is made once
#ifdef ANCHORHOLD_SANITIZED
constexpr std::size_t connections = 50;
#else
constexpr std::size_t connections = 1500;
#endif
constexpr long most_bytes = 40 * 1024;
// nghttp2 has two sessions in it, which no setting makes smaller; one connection carries a hundred requests.
constexpr long most_bytes_http2 = 80 * 1024;

class EgressIdle : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    const rlim_t files = raise_descriptor_limit();
    if (files < 3 * (first_ones + connections))
      GTEST_SKIP() << "this machine allows a process " << files
                   << " descriptors: the memory of opened connections is NOT measured";
    dns().set("idle.example.com", {"44.128.1.1"});
    allow(opened("idle.example.com"));
    start();
  }

  // Without the program's text.
  long own_kib() { return status_kib(door().pid(), "RssAnon:"); }
  // Opens all of them by `open`, which makes one and uses it once.
  template <typename Open>
  void expect_little_for_each(const char* what, [[maybe_unused]] long most, const Open& open) {
    long before = 0;
    for (std::size_t i = 0; i < first_ones + connections; ++i) {
      if (i == first_ones) before = own_kib();
      open();
      ASSERT_FALSE(HasFailure()) << "connection " << i;
    }
    const long each = (own_kib() - before) * 1024 / static_cast<long>(connections);
    std::cout << what << ": " << each << " bytes of an opened idle connection\n";
#ifndef ANCHORHOLD_SANITIZED
    EXPECT_LT(each, most);
#endif
  }
};

TEST_F(EgressIdle, AnOpenedConnectionHoldsLittle) {
  Site site("44.128.1.1", 443, echo_server("idle"), tls("idle.example.com"));
  const std::string ca = door().ca_certificate_pem();
  const std::string request = "GET /idle HTTP/1.1\r\nHost: idle.example.com\r\n\r\n";
  std::list<Wire> wires;
  expect_little_for_each("HTTP/1.1", most_bytes, [&] {
    Wire& wire = wires.emplace_back(connect("idle.example.com:443"));
    ASSERT_EQ(wire.connect_tls(ca, "idle.example.com"), "");
    wire.write(request);
    ASSERT_THAT(wire.read_response(), HasSubstr("GET /idle"));
  });
  // All of them still work.
  for (Wire& wire : wires) {
    ASSERT_TRUE(wire.write(request));
    ASSERT_THAT(wire.read_response(), HasSubstr("GET /idle"));
  }
}

TEST_F(EgressIdle, AnOpenedConnectionOfHttp2HoldsLittle) {
  Site site(
      "44.128.1.1", 443,
      [](Wire& wire) {
        Http2Peer peer(wire, true);
        peer.serve([](const Http2Message& request) {
          Http2Message message;
          message.fields = {{":status", "200"}, {"content-type", "text/plain"}};
          message.body = request.field(":path");
          return message;
        });
      },
      tls("idle.example.com", {"h2"}));
  const std::string ca = door().ca_certificate_pem();
  const Http2Fields request{
      {":method", "GET"}, {":scheme", "https"}, {":authority", "idle.example.com"}, {":path", "/idle"}};
  std::list<Wire> wires;
  std::list<Http2Peer> peers;
  expect_little_for_each("HTTP/2", most_bytes_http2, [&] {
    Wire& wire = wires.emplace_back(connect("idle.example.com:443"));
    ASSERT_EQ(wire.connect_tls(ca, "idle.example.com", {"h2"}), "");
    Http2Peer& peer = peers.emplace_back(wire, false);
    ASSERT_EQ(peer.response(peer.request(request)).body, "/idle");
  });
  for (Http2Peer& peer : peers) ASSERT_EQ(peer.response(peer.request(request)).body, "/idle");
}

}  // namespace
}  // namespace anchorhold::testing
