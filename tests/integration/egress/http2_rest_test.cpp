// Opened HTTP/2 connections that are asked nothing for a while: their server is let go of, and dialled anew,
// with everything that is decided about it, when the guest asks again.
#include <atomic>
#include <list>
#include <memory>
#include <thread>

#include "bed.h"
#include "http2_peer.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;

const std::string secret = "sk-real-secret-of-the-person-42";

class EgressHttp2Rest : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    dns().set("h2.example.com", {"44.128.1.1"});
    spec().limits.unused = std::chrono::milliseconds(100);
  }
  static Http2Message echo(const Http2Message& request) {
    Http2Message message;
    message.fields = {{":status", "200"}};
    message.body = request.field(":path") + " " + std::to_string(request.body.size()) + " " +
                   request.field("authorization");
    return message;
  }
  std::unique_ptr<Site> site(SSL_CTX* context, const std::string& address = "44.128.1.1",
                             Http2Peer::Answer answer = &echo) {
    return std::make_unique<Site>(
        address, 443,
        [this, answer](Wire& wire) {
          Http2Peer peer(wire, true);
          peer.serve(answer);
          if (peer.was_told_to_go()) let_go_.add();
        },
        context);
  }
  std::unique_ptr<Site> site() { return site(tls("h2.example.com", {"h2"})); }
  Wire inside() {
    Wire wire = connect("h2.example.com:443");
    EXPECT_EQ(wire.connect_tls(door().ca_certificate_pem(), "h2.example.com", {"h2"}), "");
    return wire;
  }
  static Http2Fields get(const std::string& path, const std::string& method = "GET") {
    return {{":method", method}, {":scheme", "https"}, {":authority", "h2.example.com"}, {":path", path}};
  }
  // A connection whose server was let go of after one request.
  struct Resting {
    Wire wire;
    Http2Peer peer{wire, false};
  };
  std::unique_ptr<Resting> resting(const Http2Fields& request = get("/first")) {
    std::unique_ptr<Resting> made(new Resting{inside()});
    EXPECT_EQ(made->peer.response(made->peer.request(request)).field(":status"), "200");
    EXPECT_TRUE(let_go_.wait_for(1));
    return made;
  }
  // The answer to a request with a body, which had to be refused.
  void expect_refused(Resting& resting, const std::string& status, const std::string& reason) {
    Http2Message answer =
        resting.peer.response(resting.peer.request(get("/", "POST"), std::string(9000, 'b')));
    EXPECT_EQ(answer.field(":status"), status);
    EXPECT_THAT(answer.field("x-anchorhold-reason"), HasSubstr(reason));
    EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", reason));
  }
  Counter let_go_;  // servers that were told so
};

TEST_F(EgressHttp2Rest, AServerThatIsAskedNothingIsLetGoOfAndDialledAnewForTheNextRequest) {
  auto with = rule("h2.example.com");
  with.credential = "example";
  allow(with);
  spec().policy.credentials["example"] = {egress::CredentialForm::Kind::bearer, {}, {}};
  host().secret = [](const egress::SecretRequest&, auto give) { give(secret); };
  auto server = site();
  start();
  auto with_token = [](Http2Fields fields) {
    fields.emplace_back("authorization", "Bearer " + session_token);
    return fields;
  };
  auto guest = resting(with_token(get("/first")));
  EXPECT_EQ(server->connections(), 1);
  // Two at once, which one connection serves.
  auto one = guest->peer.request(with_token(get("/again", "POST")), std::string(600'000, 'b'));
  auto two = guest->peer.request(with_token(get("/too")));
  EXPECT_EQ(guest->peer.response(one).body, "/again 600000 Bearer " + std::string(secret.size(), '*'));
  EXPECT_THAT(guest->peer.response(two).body, HasSubstr("/too 0 "));
  EXPECT_EQ(server->connections(), 2);
  EXPECT_EQ(sink().count("anchorhold.egress.allow"), 2) << "each connection to the server is recorded";
  EXPECT_TRUE(let_go_.wait_for(2));
}

TEST_F(EgressHttp2Rest, AServerThatCannotBeReachedAgainRefusesTheRequestAndNotTheConnection) {
  allow(opened("h2.example.com"));
  auto server = site();
  start();
  auto guest = resting();
  server.reset();
  expect_refused(*guest, "502", "h2.example.com:443 cannot be reached");
  server = site();
  EXPECT_EQ(guest->peer.response(guest->peer.request(get("/later"))).body, "/later 0 ");
}

TEST_F(EgressHttp2Rest, TheAddressIsJudgedAndTheCertificateVerifiedAgain) {
  allow(opened("h2.example.com"));
  auto server = site();
  auto other = site(tls("other.example.com", {"h2"}), "44.128.1.2");
  auto older = site(tls("h2.example.com", {"http/1.1"}), "44.128.1.3");
  start();
  auto guest = resting();
  dns().set("h2.example.com", {"44.128.1.2"});
  expect_refused(*guest, "502", "certificate cannot be trusted");
  dns().set("h2.example.com", {"127.0.0.1"});
  expect_refused(*guest, "403", "127.0.0.1");
  dns().set("h2.example.com", {"44.128.1.3"});
  expect_refused(*guest, "502", "h2.example.com:443");
  dns().set("h2.example.com", {"44.128.1.1"});
  EXPECT_EQ(guest->peer.response(guest->peer.request(get("/later"))).body, "/later 0 ");
}

TEST_F(EgressHttp2Rest, WhatTheRuleRefusesReachesNoServerAndEachRequestIsJudgedByTheRuleInForce) {
  auto only = rule("h2.example.com");
  only.methods = {"GET"};
  allow(only);
  auto server = site();
  start();
  auto guest = resting();
  expect_refused(*guest, "403", "the method POST is not allowed");
  EXPECT_EQ(server->connections(), 1);
  auto policy = spec().policy;
  only.methods = {"POST"};
  policy.rules.user = {only};
  ASSERT_TRUE(door().replace_policy(policy));
  EXPECT_NE(refused_connect("other.example.com:443"), "") << "what comes after it finds it in force";
  EXPECT_EQ(guest->peer.response(guest->peer.request(get("/now", "POST"), "four")).body, "/now 4 ");
  EXPECT_EQ(guest->peer.response(guest->peer.request(get("/now"))).field(":status"), "403");
}

TEST_F(EgressHttp2Rest, APolicyThatChangesCutsAConnectionWithoutItsServerToo) {
  allow(opened("h2.example.com"));
  auto server = site();
  start();
  auto guest = resting();
  auto policy = spec().policy;
  policy.rules.user = {rule("h2.example.com")};
  ASSERT_TRUE(door().replace_policy(policy));
  guest->peer.read_to_end();
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "whether the connection is opened"));
  EXPECT_EQ(server->connections(), 1);
}

TEST_F(EgressHttp2Rest, AStreamThatIsOpenAndQuietIsNotIdle) {
  allow(opened("h2.example.com"));
  Counter may_answer;
  auto server = site(tls("h2.example.com", {"h2"}), "44.128.1.1", [&](const Http2Message& request) {
    if (request.field(":path") == "/quiet") may_answer.wait_for(1);
    return echo(request);
  });
  start();
  Wire wire = inside();
  Http2Peer quiet(wire, false);
  auto stream = quiet.request(get("/quiet"));
  // Others come to rest meanwhile, one after another: for more than this one would be allowed.
  auto other = resting();
  for (int i = 2; i < 5; ++i) {
    EXPECT_EQ(other->peer.response(other->peer.request(get("/other"))).body, "/other 0 ");
    EXPECT_TRUE(let_go_.wait_for(i));
  }
  may_answer.add();
  EXPECT_EQ(quiet.response(stream).body, "/quiet 0 ");
  EXPECT_EQ(server->connections(), 5);
}

TEST_F(EgressHttp2Rest, AGuestThatAsksNothingForLongIsToldToGo) {
  allow(opened("h2.example.com"));
  spec().limits.waiting = std::chrono::milliseconds(300);
  auto server = site();
  start();
  auto guest = resting();
  guest->peer.read_to_end();
  EXPECT_TRUE(guest->peer.was_told_to_go());
}

TEST_F(EgressHttp2Rest, AServerThatTakesNoMoreIsNotAskedAgainAndTheGuestIsToldSo) {
  allow(opened("h2.example.com"));
  auto server = site(tls("h2.example.com", {"h2"}), "44.128.1.1", [](const Http2Message& request) {
    Http2Message message = echo(request);
    message.goodbye = true;
    return message;
  });
  start();
  Wire wire = inside();
  Http2Peer peer(wire, false);
  EXPECT_EQ(peer.response(peer.request(get("/last"))).body, "/last 0 ");
  peer.read_to_end();
  EXPECT_TRUE(peer.was_told_to_go());
  Wire next = inside();
  Http2Peer next_peer(next, false);
  EXPECT_EQ(next_peer.response(next_peer.request(get("/next"))).body, "/next 0 ");
  EXPECT_EQ(server->connections(), 2);
}

// Every look at what is idle finds some of these between two requests, or with one just coming.
TEST_F(EgressHttp2Rest, ARequestThatComesWhenTheServerIsLetGoOfIsServed) {
  constexpr int guests = 8, rounds = 20;
  allow(opened("h2.example.com"));
  spec().limits.unused = std::chrono::milliseconds(0);
  auto server = site();
  start();
  std::list<std::thread> threads;
  std::atomic<bool> over{false};
  for (int i = 0; i < guests; ++i)
    threads.emplace_back([&, i] {
      Wire wire = inside();
      Http2Peer peer(wire, false);
      const std::string body(static_cast<std::size_t>(i) * 20'000, 'b');
      const std::string wanted = "/busy " + std::to_string(body.size()) + " ";
      while (!over && !HasFailure())
        EXPECT_EQ(peer.response(peer.request(get("/busy", "POST"), body)).body, wanted);
    });
  EXPECT_TRUE(let_go_.wait_for(rounds));
  over = true;
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace anchorhold::testing
