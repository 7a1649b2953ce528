#include "egress/http_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anchorhold::egress {
namespace {

using ::testing::HasSubstr;
using Form = RequestHead::Form;
using Kind = BodyFraming::Kind;

TEST(RequestHead, TheThreeForms) {
  auto connect =
      parse_request_head("CONNECT Example.com:8443 HTTP/1.1\r\nHost: example.com:8443\r\n\r\nrest", 80);
  ASSERT_TRUE(connect && *connect) << connect.error().message;
  EXPECT_EQ((*connect)->head.form, Form::connect);
  EXPECT_EQ((*connect)->head.destination.text(), "example.com:8443");
  EXPECT_EQ(
      (*connect)->size + 4,
      std::string_view("CONNECT Example.com:8443 HTTP/1.1\r\nHost: example.com:8443\r\n\r\nrest").size());

  auto absolute = parse_request_head(
      "POST http://EXAMPLE.com/a/b?c=d HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhello", 80);
  ASSERT_TRUE(absolute && *absolute) << absolute.error().message;
  EXPECT_EQ((*absolute)->head.form, Form::absolute);
  EXPECT_EQ((*absolute)->head.destination.text(), "example.com:80");
  EXPECT_EQ((*absolute)->head.path, "/a/b");
  EXPECT_EQ((*absolute)->head.query, "c=d");
  EXPECT_EQ((*absolute)->head.body.kind, Kind::length);
  EXPECT_EQ((*absolute)->head.body.length, 5u);

  auto origin = parse_request_head(
      "GET /x HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, keep-alive\r\nUpgrade: "
      "WebSocket\r\nExpect: 100-Continue\r\n\r\n",
      443);
  ASSERT_TRUE(origin && *origin) << origin.error().message;
  EXPECT_EQ((*origin)->head.destination.text(), "example.com:443");
  EXPECT_EQ((*origin)->head.upgrade, "websocket");
  EXPECT_TRUE((*origin)->head.expects_continue);
}

TEST(RequestHead, SplitAtEveryByteNeedsMore) {
  std::string_view whole =
      "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    auto parsed = parse_request_head(whole.substr(0, size), 80);
    ASSERT_TRUE(parsed) << size << ": " << parsed.error().message;
    EXPECT_FALSE(parsed->has_value()) << size;
  }
  auto parsed = parse_request_head(whole, 80);
  ASSERT_TRUE(parsed && *parsed);
  EXPECT_EQ((*parsed)->head.body.kind, Kind::chunked);
}

TEST(RequestHead, WhatCanBeReadInTwoWaysIsRefused) {
  const std::string host = "Host: example.com\r\n";
  struct Case {
    std::string text, reason;
  };
  for (const auto& c : std::vector<Case>{
           {"GET / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding"},
           {"GET / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", ""},
           {"GET / HTTP/1.1\r\n" + host + "Content-Length: 5, 5\r\n\r\n", ""},
           {"GET / HTTP/1.1\r\n" + host + "Content-Length: +5\r\n\r\n", ""},
           {"GET / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n", ""},
           {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", "other than chunked"},
           {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            ""},
           {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n", ""},
           {"GET / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", ""},
           {"GET / HTTP/1.1\r\n" + host + host + "\r\n", "more than one Host"},
           {"GET / HTTP/1.1\r\n\r\n", "no Host"},
           {"GET / HTTP/1.1\r\nHost: \r\n\r\n", ""},
           {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", ""},
           {"GET / HTTP/1.1\r\n" + host + " folded: x\r\n\r\n", "folded"},
           {"GET / HTTP/1.1\r\n" + host + "A: b\r\n\tc\r\n\r\n", "folded"},
           {"GET / HTTP/1.1\n" + host + "\r\n", "bare LF"},
           {"GET / HTTP/1.1\r\nHost: example.com\nA: b\r\n\r\n", "bare LF"},
           {"GET / HTTP/1.1\r\nHost: example.com\rA: b\r\n\r\n", "bare CR"},
           {"GET / HTTP/1.1\r\nHost : example.com\r\n\r\n", ""},
           {"GET / HTTP/1.1\r\n: x\r\n" + host + "\r\n", ""},
           {std::string("GET / HTTP/1.1\r\nHost: example.com\0\r\n\r\n", 38), "NUL"},
           {"GET / HTTP/1.1\r\n" + host + "A: \x01\r\n\r\n", ""},
           {"GET /a b HTTP/1.1\r\n" + host + "\r\n", ""},
           {"GET /a#b HTTP/1.1\r\n" + host + "\r\n", ""},
           {"GET / HTTP/2.0\r\n" + host + "\r\n", ""},
           {"GET / HTTP/1.2\r\n" + host + "\r\n", ""},
           {"GET /\r\n" + host + "\r\n", ""},
           {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
           {"GET https://example.com/ HTTP/1.1\r\n" + host + "\r\n", "http://"},
           {"GET ftp://example.com/ HTTP/1.1\r\n" + host + "\r\n", "http://"},
           {"GET http://user@example.com/ HTTP/1.1\r\n" + host + "\r\n", ""},
           {"GET http://other.example/ HTTP/1.1\r\n" + host + "\r\n", "the Host field says"},
           {"GET http://example.com:81/ HTTP/1.1\r\n" + host + "\r\n", "the Host field says"},
           {"GET example.com HTTP/1.1\r\n" + host + "\r\n", ""},
           {"CONNECT example.com HTTP/1.1\r\n" + host + "\r\n", "port is missing"},
           {"CONNECT example.com:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n", "the Host field says"},
           {"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nContent-Length: 3\r\n\r\n",
            "with a body"},
           {"CONNECT /path HTTP/1.1\r\n" + host + "\r\n", ""},
           {"GET / HTTP/1.1\r\n" + host + "Expect: nonsense\r\n\r\n", "Expect"},
           {"\r\nGET / HTTP/1.1\r\n" + host + "\r\n", ""},
           {"GET / HTTP/1.1\r\n" + host + "A: " + std::string(max_head_bytes, 'x') + "\r\n\r\n", "more than"},
       }) {
    auto parsed = parse_request_head(c.text, 80);
    ASSERT_FALSE(parsed) << c.text.substr(0, 100);
    EXPECT_THAT(parsed.error().message, HasSubstr(c.reason)) << c.text.substr(0, 100);
  }
  std::string many = "GET / HTTP/1.1\r\n" + host;
  for (std::size_t i = 0; i < max_fields; ++i) many += "a: b\r\n";
  EXPECT_FALSE(parse_request_head(many + "\r\n", 80));
  EXPECT_FALSE(parse_request_head(std::string(max_head_bytes + 1, 'a'), 80));
}

TEST(ResponseHead, BodiesByTheRules) {
  struct Case {
    std::string text;
    std::string_view method;
    Kind kind;
    bool keep_alive;
  };
  for (const auto& c : std::vector<Case>{
           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", Kind::length, true},
           {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "GET", Kind::length, true},
           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n", "GET",
            Kind::chunked, false},
           {"HTTP/1.1 200 OK\r\n\r\n", "GET", Kind::until_close, false},
           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", Kind::none, true},
           {"HTTP/1.1 204 No Content\r\n\r\n", "GET", Kind::none, true},
           {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET", Kind::none, true},
           {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "GET", Kind::none, true},
           {"HTTP/1.1 200 Connection established\r\n\r\n", "CONNECT", Kind::none, true},
           {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", Kind::length, false},
           {"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n", "GET", Kind::length, true},
       }) {
    auto parsed = parse_response_head(c.text, c.method);
    ASSERT_TRUE(parsed && *parsed) << c.text << (parsed ? "" : parsed.error().message);
    EXPECT_EQ((*parsed)->head.body.kind, c.kind) << c.text;
    EXPECT_EQ((*parsed)->head.keep_alive, c.keep_alive) << c.text;
  }
  for (const char* text :
       {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 99 X\r\n\r\n",
        "HTTP/1.1 600 X\r\n\r\n", "HTTP/1.1 abc X\r\n\r\n", "HTTP/1.1 200\r\n\r\n", "ICY 200 OK\r\n\r\n"})
    EXPECT_FALSE(parse_response_head(text, "GET")) << text;
}

}  // namespace
}  // namespace anchorhold::egress
