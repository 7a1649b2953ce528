#include "base/url.h"

#include <gtest/gtest.h>

namespace anchorhold {
namespace {

TEST(Url, IsTakenApartOrRefused) {
  struct Case {
    std::string text, base;
    std::string whole;      // empty: refused
    std::string authority;  // of what is not
    std::string target;
  };
  const Case cases[] = {
      {"https://example.com", "", "https://example.com/", "example.com", "/"},
      {"http://example.com/a/b?c=d&e", "", "http://example.com/a/b?c=d&e", "example.com", "/a/b?c=d&e"},
      {"https://example.com:443/", "", "https://example.com/", "example.com", "/"},
      {"http://example.com:80/x", "", "http://example.com/x", "example.com", "/x"},
      {"http://example.com:443/", "", "http://example.com:443/", "example.com:443", "/"},
      {"https://[2001:db8::1]:8443/x", "", "https://[2001:db8::1]:8443/x", "[2001:db8::1]:8443", "/x"},
      {"HTTPS://example.com/", "", "https://example.com/", "example.com", "/"},
      {"https://example.com/a/../b/./c", "", "https://example.com/b/c", "example.com", "/b/c"},
      {"https://example.com/a#part", "", "https://example.com/a", "example.com", "/a"},
      {"https://example.com?x", "", "https://example.com/?x", "example.com", "/?x"},
      {"https://example.com/%2e%2f", "", "https://example.com/%2e%2f", "example.com", "/%2e%2f"},
      {"//other.example/x", "https://example.com/a", "https://other.example/x", "other.example", "/x"},
      {"/x?y", "https://example.com:8443/a/b", "https://example.com:8443/x?y", "example.com:8443", "/x?y"},
      {"../x", "https://example.com/a/b/c", "https://example.com/a/x", "example.com", "/a/x"},
      {"http://example.com/", "https://example.com/", "http://example.com/", "example.com", "/"},
      // As browsers read it.
      {"https:///x", "", "https://x/", "x", "/"},
      {"", "", "", "", ""},
      {"example.com", "", "", "", ""},
      {"/x", "", "", "", ""},
      {"ftp://example.com/", "", "", "", ""},
      {"file:///etc/passwd", "", "", "", ""},
      {"file:///etc/passwd", "https://example.com/", "", "", ""},
      {"javascript:alert(1)", "", "", "", ""},
      {"https://", "", "", "", ""},
      {"https://me@example.com/", "", "", "", ""},
      {"https://me:secret@example.com/", "", "", "", ""},
      {"https://@example.com/", "", "", "", ""},
      {"https://example.com:0/", "", "", "", ""},
      {"https://example.com:65536/", "", "", "", ""},
      {"https://example.com:x/", "", "", "", ""},
      {"https://exam ple.com/", "", "", "", ""},
      {"https://example.com/a b", "", "", "", ""},
      {"https://example.com/\r\nX: y", "", "", "", ""},
      {std::string("https://example.com/\0x", 22), "", "", "", ""},
      {"https://[fe80::1%25eth0]/", "", "", "", ""},
      {"https://[::1", "", "", "", ""},
      {"/x", "no address", "", "", ""},
  };
  for (const auto& each : cases) {
    auto url = parse_url(each.text, each.base);
    EXPECT_EQ(url ? url->text() : "", each.whole) << each.text;
    if (!url) {
      EXPECT_EQ(url.error().code, ErrorCode::invalid_argument) << each.text;
      continue;
    }
    EXPECT_EQ(url->authority(), each.authority) << each.text;
    EXPECT_EQ(url->target(), each.target) << each.text;
    // What was understood is understood in the same way again.
    EXPECT_EQ(parse_url(url->text())->text(), each.whole);
  }
}

TEST(Url, NoPasswordIsRepeated) {
  auto refused = parse_url("https://me:secret@example.com/");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find("secret"), std::string::npos);
}

}  // namespace
}  // namespace anchorhold
