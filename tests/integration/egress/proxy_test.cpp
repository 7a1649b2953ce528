// The host's own proxy, which the guest never sees.
#include "bed.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string expected = "Proxy-Authorization: Basic cGVyc29uOnBhc3M=";  // person:pass

class EgressUpstreamProxy : public EgressBed {
 protected:
  // A proxy that connects where it is asked to, at 44.128.2.1:3128.
  Site::Serve proxy() {
    return [this](Wire& wire) {
      std::string head = wire.read_until("\r\n\r\n");
      heads_.push_back(head);
      if (head.find(expected) == std::string::npos) {
        wire.write("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
        return;
      }
      if (head.starts_with("CONNECT")) {
        wire.write("HTTP/1.1 200 OK\r\n\r\n");
        if (wire.accept_tls(context_).empty()) echo_server("through the proxy")(wire);
        return;
      }
      wire.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain");
    };
  }
  void use(const std::string& url) {
    auto parsed = egress::UpstreamProxy::parse(url);
    ASSERT_TRUE(parsed.has_value());
    spec().proxies.http = spec().proxies.https = *parsed;
  }
  std::vector<std::string> heads_;
  SSL_CTX* context_ = nullptr;
};

TEST_F(EgressUpstreamProxy, ConnectionsAndRequestsGoThroughItWithItsCredentials) {
  context_ = tls("far.example.com");
  Site site("44.128.2.1", 3128, proxy());
  use("http://person:pass@44.128.2.1:3128");
  allow(rule("*.example.com"));
  start();
  // The name is known to the proxy alone.
  Wire wire = connect("far.example.com:443");
  ASSERT_EQ(wire.connect_tls(authority().pem(), "far.example.com"), "");
  wire.write("GET /t HTTP/1.1\r\nHost: far.example.com\r\n\r\n");
  EXPECT_THAT(wire.read_response(), HasSubstr("through the proxy GET /t"));
  Wire plain = open();
  plain.write(
      "GET http://far.example.com/p HTTP/1.1\r\nHost: far.example.com\r\nProxy-Authorization: Basic "
      "eA==\r\n\r\n");
  EXPECT_THAT(plain.read_response(), HasSubstr("plain"));
  EXPECT_THAT(heads_.back(), StartsWith("GET http://far.example.com/p HTTP/1.1"));
  EXPECT_THAT(heads_.back(), ::testing::Not(HasSubstr("eA==")))
      << "the guest's credentials for a proxy end here";
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.allow", "egress.address=proxy 44.128.2.1:3128"));
}

TEST_F(EgressUpstreamProxy, ANameThatLeadsInsideIsRefusedBeforeTheProxyIsAsked) {
  dns().set("inside.example.com", {"10.0.0.1"});
  Site site("44.128.2.1", 3128, proxy());
  use("http://person:pass@44.128.2.1:3128");
  allow(rule("*.example.com"));
  start();
  EXPECT_THAT(refused_connect("inside.example.com:443"), StartsWith("403 "));
  EXPECT_THAT(refused_connect("169.254.169.254:443"), StartsWith("403 "));
  EXPECT_TRUE(heads_.empty());
}

TEST_F(EgressUpstreamProxy, OverTlsItIsVerified) {
  context_ = tls("far.example.com");
  dns().set("proxy.example.net", {"44.128.2.1"});
  Site site("44.128.2.1", 3128, proxy(), tls("proxy.example.net", {}));
  use("https://person:pass@proxy.example.net:3128");
  allow(rule("*.example.com"));
  start();
  Wire plain = open();
  plain.write("GET http://far.example.com/p HTTP/1.1\r\nHost: far.example.com\r\n\r\n");
  EXPECT_THAT(plain.read_response(), HasSubstr("plain"));
}

TEST_F(EgressUpstreamProxy, ItsRefusalIsTold) {
  Site site("44.128.2.1", 3128, proxy());
  use("http://44.128.2.1:3128");
  allow(rule("*.example.com"));
  start();
  EXPECT_THAT(refused_connect("far.example.com:443"),
              HasSubstr("the host's proxy refused far.example.com:443 with 407"));
}

TEST_F(EgressUpstreamProxy, ExceptionsAreDialledDirectly) {
  dns().set("near.example.com", {"44.128.1.1"});
  Site site("44.128.1.1", 443, echo_server("direct"), tls("near.example.com"));
  use("http://person:pass@44.128.2.1:3128");
  spec().proxies.no_proxy = {"near.example.com"};
  allow(rule("*.example.com"));
  start();
  Wire wire = connect("near.example.com:443");
  EXPECT_EQ(wire.connect_tls(authority().pem(), "near.example.com"), "");
}

}  // namespace
}  // namespace anchorhold::testing
