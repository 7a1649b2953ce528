// HTTP/1 that is read by the process: http:// requests to the proxy, and connections that a rule has opened.
#include "bed.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class EgressHttp : public EgressBed {
 protected:
  // A TLS connection to this name, opened by the process.
  Wire inside(const std::string& name, std::vector<std::string> protocols = {"http/1.1"}) {
    Wire wire = connect(name + ":443");
    EXPECT_EQ(wire.connect_tls(door().ca_certificate_pem(), name, std::move(protocols)), "");
    return wire;
  }
  std::string get(Wire& wire, const std::string& path, const std::string& host,
                  const std::string& fields = {}) {
    wire.write("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n");
    return wire.read_response();
  }
};

TEST_F(EgressHttp, RequestsToTheProxyAreJudgedOneByOne) {
  dns().set("a.example.com", {"44.128.1.1"});
  dns().set("b.example.com", {"44.128.1.2"});
  Site a("44.128.1.1", 80, echo_server("site a")), b("44.128.1.2", 80, echo_server("site b"));
  allow(rule("a.example.com"));
  allow(rule("b.example.com"));
  start();
  Wire wire = open();
  EXPECT_THAT(get(wire, "http://a.example.com/x?y=1", "a.example.com", "Proxy-Connection: keep-alive\r\n"),
              HasSubstr("site a GET /x?y=1 a.example.com 0"));
  std::string again = get(wire, "http://a.example.com/2", "a.example.com");
  EXPECT_THAT(again, HasSubstr("site a GET /2"));
  EXPECT_THAT(again, Not(HasSubstr("Proxy-Connection")));
  EXPECT_EQ(a.connections(), 1) << "one connection serves both";
  EXPECT_THAT(get(wire, "http://b.example.com/3", "b.example.com"), HasSubstr("site b GET /3"));
  EXPECT_THAT(get(wire, "http://c.example.com/4", "c.example.com"), StartsWith("HTTP/1.1 403"));
}

TEST_F(EgressHttp, AHostThatIsNotTheTargetIsRefused) {
  dns().set("a.example.com", {"44.128.1.1"});
  Site a("44.128.1.1", 80, echo_server("site a"));
  allow(rule("*.example.com"));
  start();
  Wire wire = open();
  EXPECT_THAT(get(wire, "http://a.example.com/", "b.example.com"), StartsWith("HTTP/1.1 400"));
  Wire inside = connect("a.example.com:80");
  EXPECT_THAT(get(inside, "/", "b.example.com"), HasSubstr("403"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny",
                              "is for b.example.com:80 on a connection to a.example.com:80"));
  EXPECT_TRUE(a.wait_for_connections(1));
  EXPECT_EQ(a.connections(), 1);
}

TEST_F(EgressHttp, PlainHttpToPort443IsRefused) {
  dns().set("a.example.com", {"44.128.1.1"});
  allow(rule("a.example.com"));
  start();
  Wire wire = open();
  EXPECT_THAT(get(wire, "http://a.example.com:443/", "a.example.com:443"),
              HasSubstr("does not belong on port 443"));
}

TEST_F(EgressHttp, AmbiguousMessagesAreRefused) {
  dns().set("a.example.com", {"44.128.1.1"});
  Site a("44.128.1.1", 80, echo_server("site a"));
  allow(rule("a.example.com"));
  start();
  const std::string host = "Host: a.example.com\r\n";
  for (const std::string& head : {
           std::string("GET / HTTP/1.1\r\n") + host + host + "\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
           "GET / HTTP/1.1\n" + host + "\n",
           "GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n",
           std::string("GET / HTTP/1.1\r\n\r\n"),
       }) {
    Wire wire = connect("a.example.com:80");
    wire.write(head);
    EXPECT_THAT(wire.read_all(), StartsWith("HTTP/1.1 400")) << head;
  }
  Wire nested = connect("a.example.com:80");
  nested.write("CONNECT b.example.com:443 HTTP/1.1\r\nHost: b.example.com\r\n\r\n");
  EXPECT_THAT(nested.read_all(), HasSubstr("there is one proxy"));
}

TEST_F(EgressHttp, APipelinedSecondRequestIsJudgedAlone) {
  dns().set("a.example.com", {"44.128.1.1"});
  Site a("44.128.1.1", 80, echo_server("site a"));
  auto only_x = rule("a.example.com");
  only_x.paths = {"/x*"};
  allow(only_x);
  start();
  Wire wire = connect("a.example.com:80");
  wire.write(
      "GET /x1 HTTP/1.1\r\nHost: a.example.com\r\n\r\nGET /secret HTTP/1.1\r\nHost: a.example.com\r\n\r\n");
  EXPECT_THAT(wire.read_response(), HasSubstr("GET /x1"));
  EXPECT_THAT(wire.read_response(), HasSubstr("the path is not allowed"));
  // One in a body is a body.
  Wire body = connect("a.example.com:80");
  body.write(
      "POST /x HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 44\r\n\r\n"
      "GET /secret HTTP/1.1\r\nHost: a.example.com\r\n\r\n");
  EXPECT_THAT(body.read_response(), HasSubstr("POST /x a.example.com 44"));
}

TEST_F(EgressHttp, AnOpenedConnectionShowsACertificateOfTheSession) {
  dns().set("api.example.com", {"44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("api"), tls("api.example.com"));
  auto reads = rule("api.example.com");
  reads.methods = {"GET", "HEAD"};
  allow(reads);
  start();
  Wire wire = inside("api.example.com");
  EXPECT_THAT(wire.peer_certificate_name(), HasSubstr("Anchorhold session"));
  EXPECT_THAT(get(wire, "/one", "api.example.com"), HasSubstr("api GET /one api.example.com 0"));
  EXPECT_THAT(get(wire, "/two", "api.example.com"), HasSubstr("api GET /two"));
  EXPECT_EQ(site.connections(), 1);
  wire.write("POST /three HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(wire.read_response(), HasSubstr("the method POST is not allowed"));
  Wire other = inside("api.example.com");
  EXPECT_THAT(get(other, "/", "other.example.com"), HasSubstr("403"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny",
                              "other.example.com:443 on a connection to api.example.com:443"));
}

TEST_F(EgressHttp, AServerThatCannotBeTrustedIsExplainedAndNeverClickedThrough) {
  dns().set("old.example.com", {"44.128.1.1"});
  dns().set("wrong.example.com", {"44.128.1.2"});
  dns().set("self.example.com", {"44.128.1.3"});
  int asked = 0;
  auto serve = [&](Wire& wire) { asked += wire.read_some().empty() ? 0 : 1; };
  Site old("44.128.1.1", 443, serve, authority().context_for({"old.example.com", true}, {"http/1.1"}));
  Site wrong("44.128.1.2", 443, serve, tls("another.example.com"));
  Site self("44.128.1.3", 443, serve,
            authority().context_for({"self.example.com", false, true}, {"http/1.1"}));
  allow(opened("*.example.com"));
  start();
  const std::pair<const char*, const char*> table[] = {{"old.example.com", "certificate has expired"},
                                                       {"wrong.example.com", "hostname mismatch"},
                                                       {"self.example.com", "cannot be trusted"}};
  for (const auto& [name, why] : table) {
    Wire wire = inside(name);
    std::string answer = get(wire, "/", name);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 502")) << name;
    EXPECT_THAT(answer, HasSubstr(why)) << name;
  }
  EXPECT_EQ(asked, 0);
}

TEST_F(EgressHttp, BodiesPassInEveryFraming) {
  dns().set("up.example.com", {"44.128.1.1"});
  Site site(
      "44.128.1.1", 443,
      [](Wire& wire) {
        std::string head = wire.read_until("\r\n\r\n");
        std::string body;
        if (auto length = field_of(head, "content-length"); !length.empty()) {
          body = wire.read_exactly(std::stoul(length));
        } else {
          for (;;) {
            std::size_t size = std::stoul(wire.read_until("\r\n"), nullptr, 16);
            std::string part = wire.read_exactly(size + 2);
            body += part.substr(0, size);
            if (size == 0) break;
          }
        }
        wire.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n");
        wire.write("5\r\nhello\r\n");
        std::string size = std::to_string(body.size());
        wire.write("1\r\n \r\n" + std::string(1, static_cast<char>('0' + size.size())) + "\r\n" + size +
                   "\r\n");
        wire.write("0\r\nX-Sum: 42\r\n\r\n");
      },
      tls("up.example.com"));
  allow(opened("up.example.com"));
  start();
  std::string megabyte(1u << 20, 'm');
  {
    Wire wire = inside("up.example.com");
    wire.write("POST / HTTP/1.1\r\nHost: up.example.com\r\nContent-Length: 1048576\r\n\r\n" + megabyte);
    std::string answer = wire.read_response();
    EXPECT_THAT(answer, HasSubstr("1048576"));
    EXPECT_THAT(answer, HasSubstr("X-Sum: 42"));
  }
  Wire wire = inside("up.example.com");
  wire.write("POST / HTTP/1.1\r\nHost: up.example.com\r\nTransfer-Encoding: chunked\r\n\r\n");
  wire.write("3;ext=1\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
  EXPECT_THAT(wire.read_response(), HasSubstr("7"));
}

TEST_F(EgressHttp, AnUploadIsCountedAsItPasses) {
  dns().set("up.example.com", {"44.128.1.1"});
  Site site(
      "44.128.1.1", 443, [](Wire& wire) { wire.read_all(); }, tls("up.example.com"));
  auto limited = rule("up.example.com");
  limited.max_upload = ByteSize{1000};
  allow(limited);
  start();
  Wire announced = inside("up.example.com");
  announced.write("POST / HTTP/1.1\r\nHost: up.example.com\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_THAT(announced.read_response(), HasSubstr("403"));
  Wire counted = inside("up.example.com");
  counted.write("POST / HTTP/1.1\r\nHost: up.example.com\r\nTransfer-Encoding: chunked\r\n\r\n");
  counted.write("3e8\r\n" + std::string(1000, 'x') + "\r\n1\r\nx\r\n0\r\n\r\n");
  EXPECT_THAT(counted.read_response(), HasSubstr("a body of more than 1000 B is not allowed"));
}

TEST_F(EgressHttp, ContinueAndEarlyAnswersPass) {
  dns().set("up.example.com", {"44.128.1.1"});
  Site site(
      "44.128.1.1", 443,
      [](Wire& wire) {
        std::string head = wire.read_until("\r\n\r\n");
        if (head.starts_with("POST /no")) {
          wire.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
          wire.read_all();
          return;
        }
        wire.write("HTTP/1.1 100 Continue\r\n\r\n");
        std::string body = wire.read_exactly(4);
        wire.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body);
      },
      tls("up.example.com"));
  allow(opened("up.example.com"));
  start();
  const std::string fields = "Host: up.example.com\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
  Wire wire = inside("up.example.com");
  wire.write("POST /yes HTTP/1.1\r\n" + fields);
  EXPECT_EQ(wire.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  wire.write("body");
  EXPECT_THAT(wire.read_response(), HasSubstr("body"));
  Wire refused = inside("up.example.com");
  refused.write("POST /no HTTP/1.1\r\n" + fields);
  std::string answer = refused.read_response();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
}

TEST_F(EgressHttp, ServerSentEventsAndWebSocketsAreNotHeldBack) {
  dns().set("live.example.com", {"44.128.1.1"});
  Site site(
      "44.128.1.1", 443,
      [](Wire& wire) {
        std::string head = wire.read_until("\r\n\r\n");
        if (head.starts_with("GET /ws")) {
          wire.write(
              "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
              "Sec-WebSocket-Accept: x\r\n\r\nfirst");
          for (std::string part; !(part = wire.read_some()).empty();) wire.write("<" + part + ">");
          return;
        }
        wire.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        wire.write("data: 1\n\n");
        std::string go = wire.read_some();  // nothing more until the guest says so
        wire.write("data: 2\n\n");
      },
      tls("live.example.com"));
  allow(opened("live.example.com"));
  start();
  Wire events = inside("live.example.com");
  events.write("GET /events HTTP/1.1\r\nHost: live.example.com\r\n\r\n");
  EXPECT_THAT(events.read_until("\r\n\r\n"), HasSubstr("text/event-stream"));
  EXPECT_EQ(events.read_until("\n\n"), "data: 1\n\n");
  Wire socket = inside("live.example.com");
  socket.write(
      "GET /ws HTTP/1.1\r\nHost: live.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
  EXPECT_THAT(socket.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 101"));
  EXPECT_EQ(socket.read_exactly(5), "first");
  socket.write("ping");
  EXPECT_EQ(socket.read_exactly(6), "<ping>");
  // To another host it is refused as any request is.
  Wire other = inside("live.example.com");
  other.write(
      "GET /ws HTTP/1.1\r\nHost: other.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  EXPECT_THAT(other.read_response(), StartsWith("HTTP/1.1 403"));
}

TEST_F(EgressHttp, AServerThatClosesAnIdleConnectionIsDialledAgain) {
  dns().set("short.example.com", {"44.128.1.1"});
  Site site(
      "44.128.1.1", 443,
      [](Wire& wire) {
        std::string head = wire.read_until("\r\n\r\n");
        wire.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      },
      tls("short.example.com"));
  allow(opened("short.example.com"));
  start();
  Wire wire = inside("short.example.com");
  for (int i = 0; i < 5; ++i) EXPECT_THAT(get(wire, "/", "short.example.com"), HasSubstr("\r\n\r\nok"));
  EXPECT_EQ(site.connections(), 5);
}

TEST_F(EgressHttp, TruncatedAndBrokenResponsesAreSeenToBeSo) {
  dns().set("bad.example.com", {"44.128.1.1"});
  Site site(
      "44.128.1.1", 443,
      [](Wire& wire) {
        std::string head = wire.read_until("\r\n\r\n");
        if (head.starts_with("GET /short"))
          wire.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        else if (head.starts_with("GET /none"))
          return;
        else
          wire.write("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
      },
      tls("bad.example.com"));
  allow(opened("bad.example.com"));
  start();
  Wire cut = inside("bad.example.com");
  cut.write("GET /short HTTP/1.1\r\nHost: bad.example.com\r\n\r\n");
  EXPECT_TRUE(cut.read_all().ends_with("only this"));
  Wire none = inside("bad.example.com");
  EXPECT_THAT(get(none, "/none", "bad.example.com"), StartsWith("HTTP/1.1 502"));
  Wire both = inside("bad.example.com");
  EXPECT_THAT(get(both, "/both", "bad.example.com"), StartsWith("HTTP/1.1 502"));
}

TEST_F(EgressHttp, ALateGuestAndAnOldClientAreServed) {
  dns().set("a.example.com", {"44.128.1.1"});
  Site a("44.128.1.1", 80, [](Wire& wire) {
    wire.read_until("\r\n\r\n");
    wire.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    wire.read_all();
  });
  allow(rule("a.example.com"));
  start();
  Wire wire = open();
  wire.write("GET http://a.example.com/ HTTP/1.0\r\n\r\n");
  std::string all = wire.read_all();
  EXPECT_TRUE(all.ends_with("\r\n\r\nabc")) << all;
}

}  // namespace
}  // namespace anchorhold::testing
