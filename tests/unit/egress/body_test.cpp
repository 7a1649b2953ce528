#include "egress/body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anchorhold::egress {
namespace {

using ::testing::HasSubstr;

// The content of a chunked body given in pieces of this size, or the error.
Result<std::string> decoded(const std::string& bytes, std::size_t piece,
                            std::vector<Field>* trailers = nullptr, std::size_t* left = nullptr) {
  ChunkedReader reader;
  std::string content, waiting;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    waiting += bytes.substr(at, piece);
    for (;;) {
      auto step = ANCHORHOLD_TRY(reader.next(waiting));
      content += step.data;
      waiting.erase(0, step.consumed);
      if (step.kind == ChunkedReader::Step::Kind::done) {
        if (trailers) *trailers = reader.trailers();
        if (left) *left = waiting.size() + bytes.size() - std::min(bytes.size(), at + piece);
        return content;
      }
      if (step.kind == ChunkedReader::Step::Kind::more) break;
    }
  }
  return fail(ErrorCode::unavailable, "not over");
}

TEST(ChunkedReader, ReadsTheCodingHoweverItIsCut) {
  const std::string bytes = "5\r\nhello\r\nA;name=value\r\n 0123456\r\n\r\n0\r\nX-Sum: 1\r\nY:2 \r\n\r\nGET";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    std::vector<Field> trailers;
    std::size_t left = 0;
    auto content = decoded(bytes, piece, &trailers, &left);
    ASSERT_TRUE(content.has_value()) << piece << content.error().message;
    EXPECT_EQ(*content, "hello 0123456\r\n");
    ASSERT_EQ(trailers.size(), 2u);
    EXPECT_EQ(trailers[1].value, "2");
    EXPECT_EQ(left, 3u) << "what follows is not touched";
  }
}

TEST(ChunkedReader, RefusesWhatCouldBeReadInTwoWays) {
  for (const char* bytes : {"5\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n",
                            "0x5\r\nhello\r\n", "-1\r\n", "\r\n", "5\r\nhelloX\r\n", "5\r\nhello\n0\r\n\r\n",
                            "g\r\n", "10000000000000000\r\n", "0\r\nX : 1\r\n\r\n", "0\r\n: 1\r\n\r\n",
                            "0\r\nX\r\n\r\n", "0\r\nX: a\rb\r\n\r\n", "0\r\nX: 1\n\r\n"}) {
    auto content = decoded(bytes, 1000);
    ASSERT_FALSE(content.has_value()) << bytes;
    EXPECT_EQ(content.error().code, ErrorCode::invalid_argument) << bytes;
  }
}

TEST(ChunkedReader, ALineWithoutAnEndIsBounded) {
  EXPECT_EQ(decoded(std::string(300, '1'), 1000).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(decoded("0\r\nX: " + std::string(20'000, 'x'), 1000).error().code, ErrorCode::invalid_argument);
}

const std::string token = "anchorhold-session-0123456789";

TEST(WatchForToken, FindsATokenThatIsCutAnywhere) {
  const std::string body = "{\"a\": \"" + token + "\", \"b\": 1}";
  for (std::size_t cut = 1; cut < body.size(); ++cut) {
    auto watch = watch_for_token(token);
    std::string out;
    auto first = watch->pass(body.substr(0, cut), out);
    if (first) first = watch->pass(body.substr(cut), out);
    EXPECT_FALSE(first.has_value()) << cut;
  }
  auto clean = watch_for_token(token);
  std::string out;
  EXPECT_TRUE(clean->pass("nothing of it", out).has_value());
  EXPECT_EQ(out, "nothing of it");
}

TEST(ScrubSecrets, CoversASecretThatIsCutAnywhereAndHoldsNothingElseBack) {
  const std::string secret = "sk-secret-sk-secret-42";
  const std::string text = "before " + secret + " after " + secret;
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    auto scrub = scrub_secrets({secret});
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece)
      ASSERT_TRUE(scrub->pass(text.substr(at, piece), out).has_value());
    ASSERT_TRUE(scrub->finish(out).has_value());
    EXPECT_EQ(out, "before " + std::string(secret.size(), '*') + " after " + std::string(secret.size(), '*'));
  }
  auto scrub = scrub_secrets({secret});
  std::string out;
  ASSERT_TRUE(scrub->pass("data: 1\n\n", out).has_value());
  EXPECT_EQ(out, "data: 1\n\n") << "an event is not held back";
}

TEST(ScrubSecrets, KnowsTheFormsInWhichASecretComesBack) {
  auto patterns = secret_patterns("se/cret\"1234", "Basic dXNlcjpzZS9jcmV0IjEyMzQ=");
  EXPECT_EQ(scrubbed("a se/cret\"1234 b", patterns), "a ************ b");
  EXPECT_EQ(scrubbed("{\"se\\/cret\\\"1234\"}", patterns), "{\"**************\"}");
  EXPECT_THAT(scrubbed("Basic dXNlcjpzZS9jcmV0IjEyMzQ=", patterns), HasSubstr("Basic ****"));
  EXPECT_TRUE(secret_patterns("short", "Bearer short").empty());
}

// However the body is cut.
TEST(JsonFields, AreFoundHoweverTheyAreWritten) {
  auto refused = [](const std::string& body) {
    int count = -1;
    for (std::size_t step : {std::size_t{1}, std::size_t{3}, body.size() + 1}) {
      auto watch = watch_json_fields({"url", "webhook"});
      std::string out;
      bool fails = false;
      for (std::size_t at = 0; at < body.size() && !fails; at += step)
        fails = !watch->pass(body.substr(at, step), out);
      if (!fails) {
        EXPECT_TRUE(watch->finish(out));
        EXPECT_EQ(out, body);
      }
      EXPECT_TRUE(count == -1 || count == static_cast<int>(fails)) << body;
      count = fails;
    }
    return count == 1;
  };
  for (const char* body :
       {R"({"url":1})", R"({"a":[{"b":{"url" : "x"}}]})", "{\"url\"\r\n\t :1}", R"({"URL":1})",
        R"({"\u0075rl":1})", R"({"\u0055\u0072\u006C":1})", R"([{},{"x":"y","webhook":2}])",
        R"({"webhoo\u212a":1})", "{\"webhoo\xe2\x84\xaa\":1}", R"({"a":"\"","url":1})",
        R"({"a":"\\","url":1})", R"({'a"':1,"url":2})", R"(// " comment
{"url":1})",
        "\xef\xbb\xbf{\"url\":1}"})
    EXPECT_TRUE(refused(body)) << body;
  for (const char* body :
       {"", "url", R"({"a":"url"})", R"(["url"])", R"({"urls":1,"curl":2})", R"({"a":"\"url\":"})",
        R"({"u rl":1})", R"({"ur\u006":1})", "url: x", R"({"a" : "url", "b":1})"})
    EXPECT_FALSE(refused(body)) << body;
  EXPECT_TRUE(refused(std::string("{\0\"\0u\0r\0l\0\"\0:\0", 14)));
  EXPECT_FALSE(refused("{\"" + std::string(1000, 'x') + "\":1}"));
}

TEST(JsonFields, AreLookedForBesideTheToken) {
  std::string out;
  EXPECT_EQ(request_filter("", {}), nullptr);
  EXPECT_FALSE(request_filter("a-token-of-the-session", {})->pass("a-token-of-the-session", out));
  auto both = request_filter("a-token-of-the-session", {"url"});
  EXPECT_TRUE(both->pass("{\"a\":1}", out));
  EXPECT_FALSE(both->pass("{\"url\":1}", out));
  EXPECT_FALSE(request_filter("a-token-of-the-session", {"url"})->pass("a-token-of-the-session", out));
}

}  // namespace
}  // namespace anchorhold::egress
