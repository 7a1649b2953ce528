// AWS Signature Version 4 through the egress process, to a server that checks signatures as S3 does.
#include <sodium.h>

#include "bed.h"
#include "egress/sigv4.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string access_key_id = "AKIAIOSFODNN7EXAMPLE";
const std::string secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const std::string temporary_token = "temporary-session-token-0123456789";

std::string hash_of(std::string_view body) {
  unsigned char hash[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(hash, reinterpret_cast<const unsigned char*>(body.data()), body.size());
  char text[sizeof hash * 2 + 1];
  sodium_bin2hex(text, sizeof text, hash, sizeof hash);
  return text;
}

// What a server that knows the secret says of a request, in words; "good" when it would serve it.
std::string verdict_of(const egress::RequestHead& head, std::string_view body) {
  auto values = egress::values_of(head.fields, "authorization");
  if (values.size() != 1) return "not one authorization";
  auto given = egress::parse_sigv4(values[0]);
  if (!given || !*given) return "no signature";
  const auto& authorization = **given;
  if (authorization.access_key_id != access_key_id) return "unknown access key id";
  auto dates = egress::values_of(head.fields, "x-amz-date");
  if (dates.size() != 1 || !dates[0].starts_with(authorization.scope.date)) return "no date";
  if (egress::values_of(head.fields, "x-amz-security-token") !=
      std::vector<std::string_view>{temporary_token})
    return "no session token";
  auto hashes = egress::values_of(head.fields, "x-amz-content-sha256");
  std::string payload = hashes.empty() ? hash_of(body) : std::string(hashes[0]);
  if (payload.size() == 64 && payload != hash_of(body)) return "another body";
  for (const char* must : {"host", "x-amz-date", "x-amz-security-token"})
    if (std::find(authorization.signed_headers.begin(), authorization.signed_headers.end(), must) ==
        authorization.signed_headers.end())
      return std::string("unsigned ") + must;
  std::string request = egress::sigv4_canonical_request(head, authorization.signed_headers,
                                                        authorization.scope.service, payload, 443);
  std::string to_sign = "AWS4-HMAC-SHA256\n" + std::string(dates[0]) + "\n" + authorization.scope.text() +
                        "\n" + hash_of(request);
  Secret key = egress::sigv4_signing_key(secret_key, authorization.scope);
  unsigned char signature[crypto_auth_hmacsha256_BYTES];
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(key.expose().data()),
                              key.size());
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(to_sign.data()),
                                to_sign.size());
  crypto_auth_hmacsha256_final(&state, signature);
  char text[sizeof signature * 2 + 1];
  sodium_bin2hex(text, sizeof text, signature, sizeof signature);
  return authorization.signature == text ? "good" : "SignatureDoesNotMatch";
}

void serve_bucket(Wire& wire) {
  for (;;) {
    std::string text = wire.read_until("\r\n\r\n");
    auto parsed = egress::parse_request_head(text, 443);
    if (!parsed || !*parsed) return;
    auto& head = (*parsed)->head;
    std::string body;
    if (head.body.kind == egress::BodyFraming::Kind::length)
      body = wire.read_exactly(static_cast<std::size_t>(head.body.length));
    if (head.body.kind == egress::BodyFraming::Kind::chunked) {
      for (;;) {
        auto size = std::stoul(wire.read_until("\r\n"), nullptr, 16);
        body += wire.read_exactly(size);
        wire.read_until("\r\n");
        if (size == 0) break;
      }
    }
    // The token of temporary credentials is a secret, and is sent back here as servers do in errors.
    std::string answer = verdict_of(head, body) + " " + head.method + " " + std::to_string(body.size()) +
                         " " + temporary_token;
    if (!wire.write("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(answer.size()) + "\r\n\r\n" +
                    answer))
      return;
  }
}

class EgressSignature : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    dns().set("bucket.s3.example.com", {"44.128.1.1"});
    auto with = rule("bucket.s3.example.com");
    with.credential = "aws";
    allow(with);
    spec().policy.credentials["aws"] = {egress::CredentialForm::Kind::aws_sigv4, {}, {}};
    host().secret = [this](const egress::SecretRequest& request, auto give) {
      scopes_.push_back(request.scope);
      auto scope = egress::SigV4Scope::parse(request.scope);
      if (!scope || scope->region != "eu-central-1") {
        give(fail(ErrorCode::permission_denied, "it is for eu-central-1"));
        return;
      }
      egress::SigV4Key key{access_key_id, temporary_token,
                           std::string(egress::sigv4_signing_key(secret_key, *scope).expose())};
      give(egress::encode_sigv4_key(key));
    };
    site_ = std::make_unique<Site>("44.128.1.1", 443, serve_bucket, tls("bucket.s3.example.com"));
    start();
  }
  void TearDown() override {
    stop();
    EXPECT_THAT(sink().all(), Not(::testing::Contains(HasSubstr(secret_key))));
    EXPECT_THAT(sink().all(), Not(::testing::Contains(HasSubstr(temporary_token))));
  }
  // As a client signs whose clock is days off; the signature itself is worth nothing.
  static std::string authorization(const std::string& id, const std::string& service = "s3",
                                   const std::string& region = "eu-central-1") {
    return "Authorization: AWS4-HMAC-SHA256 Credential=" + id + "/20200101/" + region + "/" + service +
           "/aws4_request, SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature=" +
           std::string(64, '0') + "\r\nX-Amz-Date: 20200101T000000Z\r\n";
  }
  std::string send(const std::string& line, const std::string& fields, const std::string& body = {}) {
    Wire wire = connect("bucket.s3.example.com:443");
    EXPECT_EQ(wire.connect_tls(door().ca_certificate_pem(), "bucket.s3.example.com", {"h2", "http/1.1"}), "");
    EXPECT_EQ(wire.protocol(), "http/1.1");
    wire.write(line + " HTTP/1.1\r\nHost: bucket.s3.example.com\r\n" + fields + "\r\n");
    if (fields.find("100-continue") != std::string::npos) {
      EXPECT_THAT(wire.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 100"));
    }
    wire.write(body);
    return wire.read_response();
  }

  std::vector<std::string> scopes_;
  std::unique_ptr<Site> site_;
};

TEST_F(EgressSignature, WhatWasSignedWithTheTokenIsSignedForTheServer) {
  const std::string signed_with_token = authorization(session_token);
  const std::string stars(temporary_token.size(), '*');
  auto sha = [](const std::string& text) { return "x-amz-content-sha256: " + text + "\r\n"; };
  EXPECT_THAT(send("GET /a%20key?list-type=2&prefix=a%2Fb&marker",
                   signed_with_token + sha(hash_of("")) + "Range: bytes=0-9\r\n"),
              HasSubstr("good GET 0 " + stars));
  EXPECT_THAT(send("PUT /key", signed_with_token + sha(hash_of("hello")) + "Content-Length: 5\r\n", "hello"),
              HasSubstr("good PUT 5"));
  EXPECT_THAT(
      send("PUT /key",
           signed_with_token + sha("UNSIGNED-PAYLOAD") + "Content-Length: 5\r\nContent-Type: text/plain\r\n",
           "hello"),
      HasSubstr("good PUT 5"));
  EXPECT_THAT(
      send("PUT /key",
           signed_with_token + sha("STREAMING-UNSIGNED-PAYLOAD-TRAILER") + "Transfer-Encoding: chunked\r\n",
           "5\r\nhello\r\n0\r\n\r\n"),
      HasSubstr("good PUT 5"));
  // The session's token also where temporary credentials have theirs.
  EXPECT_THAT(send("GET /", signed_with_token + "X-Amz-Security-Token: " + session_token + "\r\n"),
              HasSubstr("good GET 0"));
  EXPECT_THAT(scopes_.at(0), HasSubstr("/eu-central-1/s3/aws4_request"));
  EXPECT_THAT(scopes_.at(0), Not(StartsWith("20200101"))) << "the day is the host's";
  EXPECT_TRUE(sink().wait_for("anchorhold.credential.use", "credential.name=aws"));
}

TEST_F(EgressSignature, ABodyWithoutAHashIsHashedHere) {
  const std::string dynamo = authorization(session_token, "dynamodb");
  const std::string body(3 << 20, 'x');
  EXPECT_THAT(send("POST /", dynamo + "Content-Length: 2\r\n", "{}"), HasSubstr("good POST 2 "));
  EXPECT_THAT(send("POST /a%20b", dynamo + "Content-Length: " + std::to_string(body.size()) + "\r\n", body),
              HasSubstr("good POST " + std::to_string(body.size())));
  EXPECT_THAT(send("POST /", dynamo + "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n3\r\nabc\r\n0\r\n\r\n"),
              HasSubstr("good POST 5 "));
  EXPECT_THAT(send("POST /", dynamo + "Content-Length: 2\r\nExpect: 100-continue\r\n", "{}"),
              HasSubstr("good POST 2 "));
  std::string refused = send("POST /", dynamo + "Content-Length: 9000000\r\n");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(refused, HasSubstr("more than 8 MiB"));
}

TEST_F(EgressSignature, WhatCannotOrMustNotBeSignedIsRefusedWithTheReason) {
  const std::string mine = authorization(session_token);
  struct Case {
    std::string fields, status, reason;
  };
  const Case table[] = {
      {authorization("AKIAPLANTEDPLANTED00"), "401", "not this session's"},
      {mine + mine, "401", "stands twice"},
      {mine + "X-Amz-Security-Token: planted\r\n", "401", "not this session's"},
      {"Authorization: Bearer " + session_token + "\r\n", "401", "not this session's"},
      {"", "401", "must carry"},
      {mine + "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\nContent-Length: 3\r\n", "403",
       "chunk by chunk"},
      {authorization(session_token, "s3", "us-east-1"), "403", "it is for eu-central-1"},
  };
  for (const auto& [fields, status, reason] : table) {
    std::string answer = send("GET /", fields);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + status)) << fields;
    EXPECT_THAT(answer, HasSubstr(reason)) << fields;
  }
  EXPECT_THAT(send("GET /?X-Amz-Signature=0&X-Amz-Credential=x", mine), StartsWith("HTTP/1.1 401"));
}

}  // namespace
}  // namespace anchorhold::testing
