#include "egress/provenance.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anchorhold::egress {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Verdict = Provenance::Verdict;

constexpr std::string_view token = "ahs-0123456789abcdef0123456789abcdef";
const CredentialForm bearer{CredentialForm::Kind::bearer, "", ""};
const CredentialForm basic{CredentialForm::Kind::basic, "", "x-access-token"};
const CredentialForm api_key{CredentialForm::Kind::header, "X-Api-Key", ""};
const CredentialForm aws{CredentialForm::Kind::aws_sigv4, "", ""};

// base64 of "USER:PASSWORD", made here so that the tests do not lean on the code they test.
std::string base64(std::string_view bytes) {
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j) text += j <= count ? digits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string aws_signature(std::string_view key_id, std::string_view region) {
  return fmt::format(
      "Authorization: AWS4-HMAC-SHA256 Credential={}/20150830/{}/s3/aws4_request, SignedHeaders=host, "
      "Signature={:064}\r\n",
      key_id, region, 0);
}

RequestHead request(const std::string& fields, const std::string& target = "/v1/items") {
  auto parsed =
      parse_request_head("GET " + target + " HTTP/1.1\r\nHost: api.example.com\r\n" + fields + "\r\n", 443);
  EXPECT_TRUE(parsed && *parsed) << fields;
  return (*parsed)->head;
}

TEST(Provenance, TheTokenInItsPlaceIsSwapped) {
  const std::string t(token);
  struct Case {
    CredentialForm form;
    std::string fields;
  };
  for (const auto& c : std::vector<Case>{
           {bearer, "Authorization: Bearer " + t + "\r\n"},
           {bearer, "Accept: */*\r\nauthorization: bearer " + t + "\r\n"},
           {bearer, "Authorization: token " + t + "\r\n"},
           {basic, "Authorization: Basic " + base64("x-access-token:" + t) + "\r\n"},
           {basic, "Authorization: Basic " + base64("me:" + t) + "\r\n"},
           {basic, "Authorization: Basic " + base64(t + ":") + "\r\n"},
           {basic, "Authorization: Basic " + base64(t + ":x-oauth-basic") + "\r\n"},
           {api_key, "x-api-key: " + t + "\r\n"},
           // What only sounds like one.
           {bearer, "Authorization: Bearer " + t + "\r\nIdempotency-Key: 1\r\nSec-WebSocket-Key: eA==\r\n"},
           {bearer,
            "Authorization: Bearer " + t + "\r\nX-Tokenizer: a\r\nX-Key-Id: b\r\nNpm-Auth-Type: web\r\n"},
       }) {
    auto head = request(c.fields);
    auto judged = judge_provenance(head, c.form, token);
    ASSERT_EQ(judged.verdict, Verdict::swap) << c.fields << judged.reason;
    head.fields[judged.field].value = field_with_secret(c.form, "the-real-one");
    for (const auto& field : head.fields) EXPECT_FALSE(holds_token(field.value, token));
  }
}

TEST(Provenance, ARequestSignedWithTheTokenIsSignedAgain) {
  auto head = request("Accept: */*\r\n" + aws_signature(token, "eu-central-1"));
  auto judged = judge_provenance(head, aws, token);
  ASSERT_EQ(judged.verdict, Verdict::swap) << judged.reason;
  EXPECT_EQ(head.fields.at(judged.field).name, "Authorization");
}

TEST(Provenance, AnythingElseThatAuthenticatesIsForeign) {
  const std::string t(token), good = "Authorization: Bearer " + t + "\r\n";
  struct Case {
    CredentialForm form;
    std::string fields, target;
  };
  for (const auto& c : std::vector<Case>{
           {bearer, "", "/"},
           {bearer, "Authorization: Bearer planted-key\r\n", "/"},
           {bearer, "Authorization: Bearer " + t + "x\r\n", "/"},
           {bearer, "Authorization: Bearer " + t + ", Bearer planted\r\n", "/"},
           {bearer, "Authorization: Basic " + base64("me:" + t) + "\r\n", "/"},
           {bearer, good + good, "/"},
           {bearer, good + "Authorization: Bearer planted-key\r\n", "/"},
           {bearer, good + "X-Api-Key: planted-key\r\n", "/"},
           {bearer, good + "Cookie: session=planted\r\n", "/"},
           {bearer, good + "Proxy-Authorization: Basic " + base64("a:b") + "\r\n", "/"},
           {bearer, good + "X-Note: " + t + "\r\n", "/"},
           {bearer, good + "X-Figma-Token: planted\r\n", "/"},
           {bearer, good + "Circle-Token: planted\r\n", "/"},
           {bearer, good + "X-Auth-Key: planted\r\n", "/"},
           {bearer, good + "X-Client-Secret: planted\r\n", "/"},
           {bearer, good + "TOKEN: planted\r\n", "/"},
           {bearer, good, "/?X-Plex-Token=planted"},
           {bearer, good, "/?user%2Epassword=planted"},
           {bearer, good, "/?api_key=planted"},
           {bearer, good, "/?a=b&ACCESS_TOKEN=planted"},
           {bearer, good, "/?api%5Fkey=planted"},
           {bearer, good, "/?%zz=x"},
           {bearer, good, "/?x=" + t},
           {bearer, good, "/" + t},
           {api_key, "X-Api-Key: planted-key\r\n", "/"},
           {api_key, "Authorization: Bearer " + t + "\r\n", "/"},
           {api_key, "X-Api-Key: " + t + "\r\nAuthorization: Bearer planted\r\n", "/"},
           {basic, "Authorization: Basic " + base64(t + ":planted-key") + "\r\n", "/"},
           {basic, "Authorization: Basic " + base64("me:planted-key") + "\r\n", "/"},
           {basic, "Authorization: Basic " + base64(t + ":" + t) + "\r\n", "/"},
           {basic, "Authorization: Basic not-base64!\r\n", "/"},
           {basic, "Authorization: Basic " + base64(std::string(65, 'k') + ":" + t) + "\r\n", "/"},
           {aws, aws_signature("planted-key", "eu-central-1"), "/"},
           {aws, aws_signature(t, t), "/"},
           {aws, aws_signature(t, "eu-" + t), "/"},
       }) {
    auto judged = judge_provenance(request(c.fields, c.target), c.form, token);
    EXPECT_EQ(judged.verdict, Verdict::refused) << c.fields << c.target;
    EXPECT_THAT(judged.reason, Not(HasSubstr("planted")));
  }
}

TEST(Provenance, ParametersOfListsAreNoCredentials) {
  for (const char* target :
       {"/?page_token=a", "/?continuation-token=b&list-type=2", "/?sort_key=c", "/?keys=d"})
    EXPECT_EQ(judge_provenance(request("Authorization: Bearer " + std::string(token) + "\r\n", target),
                               bearer, token)
                  .verdict,
              Verdict::swap)
        << target;
}

TEST(Provenance, TheTokenStaysWhereItBelongs) {
  const std::string t(token);
  EXPECT_EQ(judge_provenance(request("Authorization: Bearer a-key-of-its-own\r\n"), {}, token).verdict,
            Verdict::plain);
  for (const auto& head : {request("Authorization: Bearer " + t + "\r\n"),
                           request("Authorization: Basic " + base64("a:" + t) + "\r\n"),
                           request("X-A: " + base64("12" + t + "3") + "\r\n"), request("", "/?q=" + t),
                           request("", "/a/" + t + "/b"), request("", "/?q=%61hs-" + t.substr(4))})
    EXPECT_EQ(judge_provenance(head, {}, token).verdict, Verdict::refused);
}

TEST(Provenance, TheTokenIsFoundInEncodings) {
  const std::string t(token);
  for (std::size_t before = 0; before < 7; ++before) {
    std::string text = base64(std::string(before, 'x') + t + "yy");
    EXPECT_TRUE(holds_token(text, token)) << before;
    EXPECT_FALSE(
        holds_token(base64(std::string(before, 'x') + "ahs-something-else-of-this-length-000"), token))
        << before;
  }
  EXPECT_FALSE(holds_token("", token));
  EXPECT_FALSE(holds_token(t.substr(1), token));
  EXPECT_FALSE(holds_token("%", token));
}

}  // namespace
}  // namespace anchorhold::egress
