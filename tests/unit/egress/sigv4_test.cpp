// Signatures against the examples that AWS publishes: "Signature Version 4 test suite" (AKIDEXAMPLE, service
// "service"), the IAM example of the signing process, and those of the S3 API reference (examplebucket).
#include "egress/sigv4.h"

#include <gtest/gtest.h>

namespace anchorhold::egress {
namespace {

constexpr std::string_view suite_secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr std::string_view s3_secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
constexpr std::string_view empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (unsigned char c : bytes) {
    text += "0123456789abcdef"[c >> 4];
    text += "0123456789abcdef"[c & 15];
  }
  return text;
}

RequestHead head_of(const std::string& text) {
  auto parsed = parse_request_head(text, 443);
  EXPECT_TRUE(parsed && *parsed) << text;
  return parsed && *parsed ? (*parsed)->head : RequestHead{};
}

struct Case {
  const char* name;
  const char* secret_key;
  const char* access_key_id;
  const char* time;
  const char* scope;
  std::string request;
  std::string payload;
  std::vector<std::string> also;
  const char* signature;
};

std::string suite(const std::string& line, const std::string& fields = {}) {
  return line + " HTTP/1.1\r\nHost: example.amazonaws.com\r\nAuthorization: x\r\n" + fields + "\r\n";
}
std::string bucket(const std::string& line, const std::string& fields = {}) {
  return line + " HTTP/1.1\r\nHost: examplebucket.s3.amazonaws.com\r\nAuthorization: x\r\n" + fields + "\r\n";
}

Case of_suite(const char* name, std::string request, const char* signature) {
  return {name,
          suite_secret.data(),
          "AKIDEXAMPLE",
          "20150830T123600Z",
          "20150830/us-east-1/service/aws4_request",
          std::move(request),
          std::string(empty),
          {},
          signature};
}
Case of_s3(const char* name, std::string request, std::string payload, std::vector<std::string> also,
           const char* signature) {
  return {name,
          s3_secret.data(),
          "AKIAIOSFODNN7EXAMPLE",
          "20130524T000000Z",
          "20130524/us-east-1/s3/aws4_request",
          std::move(request),
          std::move(payload),
          std::move(also),
          signature};
}

TEST(SigV4, SignsAsTheExamplesOfAws) {
  const std::string put_hash = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
  const std::string empty_hash(empty);
  const Case table[] = {
      of_suite("get-vanilla", suite("GET /"),
               "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
      of_suite("get-vanilla-query-order-key-case", suite("GET /?Param2=value2&Param1=value1"),
               "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
      of_suite("get-vanilla-empty-query-key", suite("GET /?Param1=value1"),
               "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
      of_suite("get-relative", suite("GET /example/.."),
               "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
      of_suite("get-slash", suite("GET //"),
               "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
      of_suite("get-unreserved",
               suite("GET /-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
               "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"),
      of_suite("post-vanilla", suite("POST /", "Content-Length: 0\r\n"),
               "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
      {"iam",
       suite_secret.data(),
       "AKIDEXAMPLE",
       "20150830T123600Z",
       "20150830/us-east-1/iam/aws4_request",
       "GET /?Action=ListUsers&Version=2010-05-08 HTTP/1.1\r\nHost: iam.amazonaws.com\r\nAuthorization: x\r\n"
       "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\nX-Amz-Date: "
       "20150830T123600Z\r\n\r\n",
       empty_hash,
       {},
       "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"},
      of_s3("GET object",
            bucket("GET /test.txt", "Range: bytes=0-9\r\nx-amz-content-sha256: " + empty_hash + "\r\n"),
            empty_hash, {"host", "range"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
      of_s3("PUT object",
            bucket("PUT /test$file.text",
                   "Date: Fri, 24 May 2013 00:00:00 GMT\r\nx-amz-storage-class: "
                   "REDUCED_REDUNDANCY\r\nx-amz-content-sha256: " +
                       put_hash + "\r\n"),
            put_hash, {"date"}, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
      of_s3("GET lifecycle", bucket("GET /?lifecycle", "x-amz-content-sha256: " + empty_hash + "\r\n"),
            empty_hash, {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
      of_s3("list", bucket("GET /?max-keys=2&prefix=J", "x-amz-content-sha256: " + empty_hash + "\r\n"),
            empty_hash, {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
  };
  for (const Case& each : table) {
    auto head = head_of(each.request);
    auto scope = SigV4Scope::parse(each.scope);
    ASSERT_TRUE(scope);
    SigV4Key key{each.access_key_id, {}, std::string(sigv4_signing_key(each.secret_key, *scope).expose())};
    sign_sigv4(head, 1, key, *scope, each.time, each.payload, each.also, 443);
    auto values = values_of(head.fields, "authorization");
    ASSERT_EQ(values.size(), 1u) << each.name;
    auto made = parse_sigv4(values[0]);
    ASSERT_TRUE(made && *made) << each.name << " " << values[0];
    EXPECT_EQ((*made)->signature, each.signature)
        << each.name << "\n"
        << sigv4_canonical_request(head, (*made)->signed_headers, scope->service, each.payload, 443);
    EXPECT_EQ((*made)->scope, *scope);
  }
}

TEST(SigV4, DerivesTheKeyOfADayARegionAndAService) {
  auto key = sigv4_signing_key(suite_secret, {"20150830", "us-east-1", "iam"});
  EXPECT_EQ(hex_of(key.expose()), "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
}

TEST(SigV4, PathsAndQueriesAreWrittenInOneWay) {
  struct Row {
    const char* service;
    const char* target;
    const char* path;
    const char* query;
  };
  const Row table[] = {
      {"s3", "/a%20b/c+d/%7e", "/a%20b/c%2Bd/~", ""},
      {"s3", "/a/../b//c", "/a/../b//c", ""},
      {"s3", "/%e1%88%b4", "/%E1%88%B4", ""},
      {"dynamodb", "/a%20b", "/a%2520b", ""},
      {"dynamodb", "/a//b/./c/", "/a/b/c/", ""},
      {"s3", "/?b=2&a=1&a=0&c", "/", "a=0&a=1&b=2&c="},
      {"s3", "/?x=a+b%20c&y=%2f", "/", "x=a%20b%20c&y=%2F"},
  };
  for (const Row& row : table) {
    auto head = head_of(std::string("GET ") + row.target + " HTTP/1.1\r\nHost: h.example\r\n\r\n");
    auto text = sigv4_canonical_request(head, {"host"}, row.service, "P", 443);
    EXPECT_EQ(text, std::string("GET\n") + row.path + "\n" + row.query + "\nhost:h.example\n\nhost\nP")
        << row.target;
  }
}

TEST(SigV4, ReadsAnAuthorizationStrictly) {
  const std::string good =
      "AWS4-HMAC-SHA256 Credential=TOKEN/20150830/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, "
      "Signature=" +
      std::string(64, 'a');
  auto parsed = parse_sigv4(good);
  ASSERT_TRUE(parsed && *parsed);
  EXPECT_EQ((*parsed)->access_key_id, "TOKEN");
  EXPECT_EQ((*parsed)->scope.text(), "20150830/us-east-1/s3/aws4_request");
  EXPECT_EQ((*parsed)->signed_headers, (std::vector<std::string>{"host", "x-amz-date"}));
  EXPECT_FALSE(*parse_sigv4("Bearer abc"));
  EXPECT_FALSE(*parse_sigv4("AWS4-ECDSA-P256-SHA256 Credential=a"));
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const auto& bad : {changed("TOKEN/", "/"), changed("20150830", "2015083"), changed("us-east-1", ""),
                          changed("s3", "s 3"), changed("aws4_request", "aws4"), changed("host;", ";"),
                          changed("Signature", "Sig"), changed("aaaa", "AAAA"),
                          changed("Credential=", "Credential=x, Credential="), changed("/s3", "/a/s3"),
                          good + ",", good + "a", std::string("AWS4-HMAC-SHA256 ")})
    EXPECT_FALSE(parse_sigv4(bad)) << bad;
}

TEST(SigV4, SaysWhatStandsForTheBody) {
  auto payload = [](const std::string& fields) {
    return sigv4_payload(head_of("PUT / HTTP/1.1\r\nHost: h.example\r\n" + fields + "\r\n"));
  };
  EXPECT_EQ(payload("")->text, empty);
  EXPECT_EQ(payload("Content-Length: 0\r\n")->text, empty);
  EXPECT_EQ(payload("Content-Length: 3\r\n")->kind, SigV4Payload::Kind::hashed);
  EXPECT_EQ(payload("Transfer-Encoding: chunked\r\n")->kind, SigV4Payload::Kind::hashed);
  for (std::string text : {std::string(64, 'f'), std::string("UNSIGNED-PAYLOAD"),
                           std::string("STREAMING-UNSIGNED-PAYLOAD-TRAILER")})
    EXPECT_EQ(payload("Content-Length: 3\r\nx-amz-content-sha256: " + text + "\r\n")->text, text);
  for (std::string text :
       {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"}) {
    auto refused = payload("Content-Length: 3\r\nx-amz-content-sha256: " + text + "\r\n");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("chunk by chunk"), std::string::npos);
  }
  EXPECT_FALSE(payload("x-amz-content-sha256: other\r\n"));
  EXPECT_FALSE(
      payload("x-amz-content-sha256: UNSIGNED-PAYLOAD\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"));
}

TEST(SigV4, ReplacesDateAndTokenWhereverTheyStand) {
  auto head = head_of(
      "GET / HTTP/1.1\r\nX-Amz-Date: 19700101T000000Z\r\nHost: h.example\r\n"
      "x-amz-security-token: of-the-guest\r\nx-amz-#odd: 1\r\nAuthorization: x\r\n\r\n");
  SigV4Scope scope{"20150830", "us-east-1", "s3"};
  SigV4Key key{"AKID", "temporary-token", std::string(sigv4_signing_key(s3_secret, scope).expose())};
  auto copy = parse_sigv4_key(encode_sigv4_key(key));
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->signing_key, key.signing_key);
  EXPECT_EQ(copy->session_token, "temporary-token");
  sign_sigv4(head, 4, *copy, scope, "20150830T000000Z", "UNSIGNED-PAYLOAD", {}, 443);
  EXPECT_EQ(values_of(head.fields, "x-amz-date"), std::vector<std::string_view>{"20150830T000000Z"});
  EXPECT_EQ(values_of(head.fields, "x-amz-security-token"), std::vector<std::string_view>{"temporary-token"});
  auto made = parse_sigv4(values_of(head.fields, "authorization").at(0));
  ASSERT_TRUE(made && *made) << "what is written here is read here, whatever the names are";
  EXPECT_EQ((*made)->signed_headers,
            (std::vector<std::string>{"host", "x-amz-#odd", "x-amz-date", "x-amz-security-token"}));
}

TEST(SigV4, TheTimeIsUtc) {
  using namespace std::chrono;
  EXPECT_EQ(sigv4_time(system_clock::time_point(seconds(1440938160))), "20150830T123600Z");
  EXPECT_EQ(sigv4_time(system_clock::time_point(seconds(0))), "19700101T000000Z");
}

}  // namespace
}  // namespace anchorhold::egress
