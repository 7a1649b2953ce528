// What the process holds for a connection that it has opened, and in which nothing happens any more.
#include <iostream>
#include <list>
#include <thread>
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
    spec().limits.unused = std::chrono::milliseconds(500);
    start();
  }

  // Without the program's text.
  long own_kib() { return status_kib(door().pid(), "RssAnon:"); }
  // Opens all of them by `open`, which makes one and uses it once; `come_to_rest` waits until this many rest.
  template <typename Open, typename ComeToRest>
  void expect_little_for_each(const char* what, const Open& open, const ComeToRest& come_to_rest) {
    for (std::size_t i = 0; i < first_ones + connections; ++i) {
      if (i == first_ones) {
        come_to_rest(first_ones);
        before_ = own_kib();
      }
      open();
      ASSERT_FALSE(HasFailure()) << "connection " << i;
    }
    come_to_rest(first_ones + connections);
    expect_little(what);
  }
  // What was freed is given back to the system a moment later.
  void expect_little(const char* what) {
    long each = 0;
    for (int i = 0; i < 300; ++i) {
      each = (own_kib() - before_) * 1024 / static_cast<long>(connections);
      if (each < most_bytes) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    std::cout << what << ": " << each << " bytes of an opened idle connection\n";
#ifndef ANCHORHOLD_SANITIZED
    EXPECT_LT(each, most_bytes);
#endif
  }

 private:
  long before_ = 0;
};

TEST_F(EgressIdle, AnOpenedConnectionHoldsLittle) {
  Site site("44.128.1.1", 443, echo_server("idle"), tls("idle.example.com"));
  const std::string ca = door().ca_certificate_pem();
  const std::string request = "GET /idle HTTP/1.1\r\nHost: idle.example.com\r\n\r\n";
  std::list<Wire> wires;
  auto open = [&] {
    Wire& wire = wires.emplace_back(connect("idle.example.com:443"));
    ASSERT_EQ(wire.connect_tls(ca, "idle.example.com"), "");
    wire.write(request);
    ASSERT_THAT(wire.read_response(), HasSubstr("GET /idle"));
  };
  expect_little_for_each("HTTP/1.1", open, [](std::size_t) {});
  // All of them still work.
  for (Wire& wire : wires) {
    ASSERT_TRUE(wire.write(request));
    ASSERT_THAT(wire.read_response(), HasSubstr("GET /idle"));
  }
}

TEST_F(EgressIdle, AnOpenedConnectionOfHttp2HoldsLittle) {
  Counter let_go;
  Site site(
      "44.128.1.1", 443,
      [&](Wire& wire) {
        Http2Peer peer(wire, true);
        peer.serve([](const Http2Message& request) {
          Http2Message message;
          message.fields = {{":status", "200"}, {"content-type", "text/plain"}};
          message.body = request.field(":path");
          return message;
        });
        let_go.add();
      },
      tls("idle.example.com", {"h2"}));
  const std::string ca = door().ca_certificate_pem();
  const Http2Fields request{
      {":method", "GET"}, {":scheme", "https"}, {":authority", "idle.example.com"}, {":path", "/idle"}};
  std::list<Wire> wires;
  std::list<Http2Peer> peers;
  auto open = [&] {
    Wire& wire = wires.emplace_back(connect("idle.example.com:443"));
    ASSERT_EQ(wire.connect_tls(ca, "idle.example.com", {"h2"}), "");
    Http2Peer& peer = peers.emplace_back(wire, false);
    ASSERT_EQ(peer.response(peer.request(request)).body, "/idle");
  };
  expect_little_for_each("HTTP/2", open,
                         [&](std::size_t count) { ASSERT_TRUE(let_go.wait_for(static_cast<int>(count))); });
  // All of them still work, and then rest as before.
  for (Http2Peer& peer : peers) ASSERT_EQ(peer.response(peer.request(request)).body, "/idle");
  ASSERT_TRUE(let_go.wait_for(2 * static_cast<int>(first_ones + connections)));
  expect_little("HTTP/2, used again");
}

}  // namespace
}  // namespace anchorhold::testing
