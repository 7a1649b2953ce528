// HTTP/2 from end to end through an opened connection.
#include "bed.h"
#include "http2_peer.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string secret = "sk-real-secret-of-the-person-42";

class EgressHttp2 : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    dns().set("h2.example.com", {"44.128.1.1"});
  }
  void serve(Http2Peer::Answer answer) {
    site_ = std::make_unique<Site>(
        "44.128.1.1", 443,
        [answer](Wire& wire) {
          Http2Peer peer(wire, true);
          peer.serve(answer);
        },
        tls("h2.example.com", {"h2"}));
  }
  static Http2Message echo(const Http2Message& request) {
    Http2Message message;
    message.fields = {{":status", "200"}, {"x-seen", request.field("authorization")}};
    message.body = request.field(":method") + " " + request.field(":path") + " " +
                   request.field(":authority") + " " + std::to_string(request.body.size()) + " " +
                   request.field("authorization");
    return message;
  }
  Wire inside() {
    Wire wire = connect("h2.example.com:443");
    EXPECT_EQ(wire.connect_tls(door().ca_certificate_pem(), "h2.example.com", {"h2", "http/1.1"}), "");
    EXPECT_EQ(wire.protocol(), "h2");
    return wire;
  }
  static Http2Fields get(const std::string& path, const std::string& authority = "h2.example.com") {
    return {{":method", "GET"}, {":scheme", "https"}, {":authority", authority}, {":path", path}};
  }
  std::unique_ptr<Site> site_;
};

TEST_F(EgressHttp2, RequestsShareOneConnectionAndBodiesPass) {
  serve(&echo);
  allow(opened("h2.example.com"));
  start();
  Wire wire = inside();
  Http2Peer peer(wire, false);
  auto one = peer.request(get("/one?x=1"));
  Http2Fields post = get("/two");
  post[0].second = "POST";
  auto two = peer.request(post, std::string(3u << 20, 'b'));
  EXPECT_EQ(peer.response(one).body, "GET /one?x=1 h2.example.com 0 ");
  EXPECT_EQ(peer.response(two).body, "POST /two h2.example.com 3145728 ");
  EXPECT_EQ(site_->connections(), 1);
}

TEST_F(EgressHttp2, TrailersAndInterimResponsesPassAsGrpcNeedsThem) {
  serve([](const Http2Message& request) {
    Http2Message message;
    message.interim = {{{":status", "103"}, {"link", "</style.css>"}}};
    message.fields = {{":status", "200"}, {"content-type", "application/grpc"}};
    message.body = "message for " + request.trailer("x-after");
    message.trailers = {{"grpc-status", "0"}, {"grpc-message", "fine"}};
    return message;
  });
  allow(opened("h2.example.com"));
  start();
  Wire wire = inside();
  Http2Peer peer(wire, false);
  Http2Fields call = get("/package.Service/Method");
  call[0].second = "POST";
  call.emplace_back("te", "trailers");
  auto& answer = peer.response(peer.request(call, "request", {{"x-after", "the guest"}}));
  EXPECT_EQ(answer.body, "message for the guest");
  EXPECT_EQ(answer.trailer("grpc-status"), "0");
  ASSERT_EQ(answer.interim.size(), 1u);
  EXPECT_EQ(answer.error, 0u);
}

TEST_F(EgressHttp2, EachRequestIsJudgedAloneAndAnotherAuthorityIsRefused) {
  serve(&echo);
  auto only = rule("h2.example.com");
  only.methods = {"GET"};
  only.paths = {"/v1/*"};
  allow(only);
  allow(rule("other.example.com"));
  start();
  Wire wire = inside();
  Http2Peer peer(wire, false);
  EXPECT_EQ(peer.response(peer.request(get("/v1/x"))).field(":status"), "200");
  auto& other = peer.response(peer.request(get("/v1/x", "other.example.com")));
  EXPECT_EQ(other.field(":status"), "403");
  EXPECT_THAT(other.field("x-anchorhold-reason"), HasSubstr("is for other.example.com:443"));
  EXPECT_EQ(peer.response(peer.request(get("/admin"))).field(":status"), "403");
  Http2Fields post = get("/v1/x");
  post[0].second = "POST";
  EXPECT_THAT(peer.response(peer.request(post, "body")).body, HasSubstr("the method POST is not allowed"));
  EXPECT_EQ(peer.response(peer.request(get("/v1/y"))).field(":status"), "200") << "the connection goes on";
  Http2Fields tunnel{{":method", "CONNECT"}, {":authority", "other.example.com:443"}};
  EXPECT_EQ(peer.response(peer.request(tunnel)).field(":status"), "403");
  Http2Fields twice = get("/v1/x");
  twice.emplace_back("host", "other.example.com");
  EXPECT_EQ(peer.response(peer.request(twice)).field(":status"), "400");
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "other.example.com:443 on a connection"));
}

TEST_F(EgressHttp2, TheTokenBecomesTheSecretAndTheSecretIsScrubbed) {
  serve(&echo);
  auto with = rule("h2.example.com");
  with.credential = "example";
  allow(with);
  spec().policy.credentials["example"] = {egress::CredentialForm::Kind::bearer, {}, {}};
  host().secret = [](const egress::SecretRequest&, auto give) { give(secret); };
  start();
  Wire wire = inside();
  Http2Peer peer(wire, false);
  Http2Fields with_token = get("/");
  with_token.emplace_back("authorization", "Bearer " + session_token);
  auto& answer = peer.response(peer.request(with_token));
  EXPECT_EQ(answer.field("x-seen"), "Bearer " + std::string(secret.size(), '*'));
  EXPECT_EQ(answer.body, "GET / h2.example.com 0 Bearer " + std::string(secret.size(), '*'));
  Http2Fields planted = get("/");
  planted.emplace_back("authorization", "Bearer sk-planted");
  EXPECT_EQ(peer.response(peer.request(planted)).field(":status"), "401");
  EXPECT_TRUE(sink().wait_for("anchorhold.credential.reject"));
  stop();
  EXPECT_THAT(sink().all(), Not(::testing::Contains(HasSubstr(secret))));
}

TEST_F(EgressHttp2, AnUploadIsCountedAndSearched) {
  serve(&echo);
  auto limited = rule("h2.example.com");
  limited.max_upload = ByteSize{1000};
  allow(limited);
  start();
  Wire wire = inside();
  Http2Peer peer(wire, false);
  Http2Fields post = get("/");
  post[0].second = "POST";
  EXPECT_THAT(peer.response(peer.request(post, std::string(1001, 'x'))).body, HasSubstr("more than 1000 B"));
  EXPECT_THAT(peer.response(peer.request(post, "the key is " + session_token)).body,
              HasSubstr("the body holds the session's token"));
  EXPECT_EQ(peer.response(peer.request(post, "fine")).field(":status"), "200");
}

TEST_F(EgressHttp2, GarbageInsideEndsTheConnectionWithAnEvent) {
  serve(&echo);
  allow(opened("h2.example.com"));
  start();
  Wire wire = inside();
  wire.write("this is not HTTP/2 at all, and it is long enough to be seen as such");
  wire.read_all();
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "HTTP/2:"));
}

TEST_F(EgressHttp2, AServerThatSpeaksOnlyTheOlderOneIsSpokenToInIt) {
  Site site("44.128.1.1", 443, echo_server("older"), tls("h2.example.com", {"http/1.1"}));
  allow(opened("h2.example.com"));
  start();
  Wire wire = connect("h2.example.com:443");
  ASSERT_EQ(wire.connect_tls(door().ca_certificate_pem(), "h2.example.com", {"h2", "http/1.1"}), "");
  EXPECT_EQ(wire.protocol(), "http/1.1");
}

}  // namespace
}  // namespace anchorhold::testing
