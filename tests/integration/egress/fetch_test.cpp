// Pages of the web for a session's agent, through the same door as a guest's requests.
#include "egress/fetch.h"

#include "bed.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;

// Answers by the path; the text after it is the whole response.
Site::Serve pages(std::map<std::string, std::string> responses) {
  return [responses = std::move(responses)](Wire& wire) {
    std::string head = wire.read_until("\r\n\r\n");
    auto begin = head.find(' ') + 1;
    auto found = responses.find(head.substr(begin, head.find(' ', begin) - begin));
    if (found == responses.end()) {
      wire.write("HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nnothing");
    } else if (found->second == "slow") {
      wire.write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nbegun");
      wire.read_all();  // until the reader gives up
    } else {
      wire.write(found->second);
    }
  };
}

std::string page(const std::string& type, const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

std::string redirect(const std::string& to) {
  return "HTTP/1.1 302 Found\r\nLocation: " + to + "\r\nContent-Length: 0\r\n\r\n";
}

class EgressFetch : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    dns().set("www.example.com", {"44.128.1.1"});
    dns().set("opened.example.com", {"44.128.1.2"});
    dns().set("denied.example.com", {"44.128.1.3"});
    dns().set("inner.example.com", {"10.1.2.3"});
    dns().set("bad.example.com", {"44.128.1.4"});
    std::map<std::string, std::string> all{
        {"/", page("text/html; charset=utf-8",
                   "<title>A page</title><h1>Hello</h1><p>from <a href=/b>here</a>"
                   "<script>no()</script>")},
        {"/json", page("application/json", "{\"a\":1}")},
        {"/binary", page("application/octet-stream", std::string("\0\1\2", 3))},
        {"/image", page("image/png", "PNG")},
        {"/large", page("text/plain", std::string(2u << 20, 'x'))},
        {"/long", page("text/plain", std::string(300'000, 'y'))},
        {"/chunked",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\n"
         "two\r\n0\r\n\r\n"},
        {"/slow", "slow"},
        {"/cut", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nless"},
        {"/to-page", redirect("/")},
        {"/to-opened", redirect("https://opened.example.com/")},
        {"/to-denied", redirect("https://denied.example.com/secret")},
        {"/to-inner", redirect("http://inner.example.com/")},
        {"/to-address", redirect("http://169.254.169.254/latest/meta-data")},
        {"/to-file", redirect("file:///etc/passwd")},
        {"/round", redirect("/round")}};
    tls_ = std::make_unique<Site>("44.128.1.1", 443, pages(all), tls("www.example.com"));
    plain_ = std::make_unique<Site>("44.128.1.1", 80, pages(all));
    opened_ = std::make_unique<Site>("44.128.1.2", 443, pages(all), tls("opened.example.com"));
    denied_ = std::make_unique<Site>("44.128.1.3", 443, pages(all), tls("denied.example.com"));
    bad_ = std::make_unique<Site>(
        "44.128.1.4", 443, pages(all),
        authority().context_for({.name = "bad.example.com", .self_signed = true}, {"http/1.1"}));
    allow(rule("www.example.com"));
    allow(opened("opened.example.com"));
    allow(rule("inner.example.com"));
    allow(rule("bad.example.com"));
    start();
  }
  void TearDown() override { stop(); }
  egress::FetchRequest request(const std::string& url) {
    egress::FetchRequest made{.url = url};
    made.most_bytes = 1u << 20;
    made.limit = std::chrono::seconds(30);
    return made;
  }
  Result<egress::FetchedPage> fetch(const egress::FetchRequest& wanted, std::stop_token stop_token = {}) {
    egress::FetchRoute route;
    route.adopt = [this](UniqueFd stream) { return door().adopt(std::move(stream)); };
    route.trust_pem = authority().pem() + door().ca_certificate_pem();
    route.program = spec().program.parent_path() / "anchorhold-fetch";
    return egress::fetch_page(wanted, route, std::move(stop_token));
  }
  std::string why_not(const std::string& url, ErrorCode code) {
    auto fetched = fetch(request(url));
    if (fetched) return "it was fetched: " + fetched->text;
    EXPECT_EQ(fetched.error().code, code) << fetched.error().message;
    return fetched.error().message;
  }

  std::unique_ptr<Site> tls_, plain_, opened_, denied_, bad_;
};

TEST_F(EgressFetch, AnAllowedPageIsReadAsText) {
  for (const char* url :
       {"https://www.example.com/", "http://www.example.com/", "https://opened.example.com/",
        "https://www.example.com/to-page", "https://www.example.com/to-opened"}) {
    auto fetched = fetch(request(url));
    ASSERT_TRUE(fetched) << url << ": " << fetched.error().message;
    EXPECT_EQ(fetched->title, "A page");
    EXPECT_THAT(fetched->text, HasSubstr("# Hello\n\nfrom here (http"));
    EXPECT_EQ(fetched->status, 200u);
    EXPECT_EQ(fetched->type, "text/html");
  }
  EXPECT_EQ(fetch(request("https://www.example.com/to-opened"))->url, "https://opened.example.com/");
  EXPECT_EQ(fetch(request("https://www.example.com/json"))->text, "{\"a\":1}");
  EXPECT_EQ(fetch(request("https://www.example.com/chunked"))->text, "onetwo");
  auto missing = fetch(request("https://www.example.com/none"));
  ASSERT_TRUE(missing) << missing.error().message;
  EXPECT_EQ(missing->status, 404u);
  auto cut = request("https://www.example.com/long");
  cut.most_text = 1000;
  EXPECT_EQ(fetch(cut)->text.size(), 1000u);
  EXPECT_TRUE(fetch(cut)->shortened);
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.allow", "www.example.com"));
}

TEST_F(EgressFetch, WhatTheGuestMayNotReachIsRefusedWithTheReason) {
  const std::pair<const char*, const char*> table[] = {
      {"https://denied.example.com/", "no rule names denied.example.com:443"},
      {"http://denied.example.com/", "no rule names denied.example.com:80"},
      {"https://www.example.com:8443/", "no rule names www.example.com:8443"},
      {"https://www.example.com/to-denied", "no rule names denied.example.com:443"},
      {"https://www.example.com/to-denied", "led to by https://www.example.com/to-denied"},
      {"https://www.example.com/to-inner", "10.1.2.3, a private"},
      {"https://www.example.com/to-address", "169.254.169.254"},
      {"https://www.example.com/to-file", "no address of a page: file:///etc/passwd"},
      {"http://2852039166/", "169.254.169.254"},
  };
  for (const auto& [url, reason] : table)
    EXPECT_THAT(why_not(url, ErrorCode::permission_denied), HasSubstr(reason));
  EXPECT_EQ(denied_->connections(), 0);
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "denied.example.com"));
}

TEST_F(EgressFetch, WhatIsNoPageIsRefused) {
  EXPECT_THAT(why_not("https://www.example.com/binary", ErrorCode::invalid_argument),
              HasSubstr("octet-stream"));
  EXPECT_THAT(why_not("https://www.example.com/image", ErrorCode::invalid_argument), HasSubstr("image/png"));
  EXPECT_THAT(why_not("https://www.example.com/large", ErrorCode::resource_exhausted),
              HasSubstr("larger than"));
  EXPECT_THAT(why_not("https://www.example.com/round", ErrorCode::unavailable), HasSubstr("on and on"));
  EXPECT_THAT(why_not("https://www.example.com/cut", ErrorCode::unavailable), HasSubstr("/cut"));
  EXPECT_THAT(why_not("https://bad.example.com/", ErrorCode::failed_precondition), HasSubstr("certificate"));
  for (const char* url :
       {"", "www", "file:///etc/passwd", "ftp://www.example.com/", "https://u:p@www.example.com/",
        "https://u@www.example.com/", "https://", "gopher://x/"})
    EXPECT_THAT(why_not(url, ErrorCode::invalid_argument), HasSubstr("no address of a page")) << url;
}

TEST_F(EgressFetch, ASlowServerEndsWithTheTimeOrWithTheTask) {
  auto slow = request("https://www.example.com/slow");
  slow.limit = std::chrono::milliseconds(300);
  auto fetched = fetch(slow);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().code, ErrorCode::deadline_exceeded) << fetched.error().message;
  std::stop_source stop;
  stop.request_stop();
  fetched = fetch(request("https://www.example.com/slow"), stop.get_token());
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace anchorhold::testing
