#include "egress/upstream.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"

namespace anchorhold::egress {
namespace {

policy::Destination to(const char* text) {
  return *policy::Destination::parse(text, {});
}

TEST(UpstreamProxies, AreReadFromTheEnvironmentAsCurlReadsThem) {
  std::map<std::string, std::string> values{
      {"http_proxy", "http://one:1"},
      {"HTTP_PROXY", "http://never:1"},
      {"HTTPS_PROXY", "https://me:p%3ass@two.example"},
      {"NO_PROXY", "localhost, .inside.example,10.0.0.0/8 , port.example:8443"}};
  auto proxies = UpstreamProxies::from_environment([&](const char* name) -> const char* {
    auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
  ASSERT_TRUE(proxies.has_value()) << proxies.error().message;
  EXPECT_EQ(proxies->for_destination(to("example.com:80"), true)->address.text(), "one:1");
  const auto* https = proxies->for_destination(to("example.com:443"), false);
  ASSERT_TRUE(https);
  EXPECT_TRUE(https->tls);
  EXPECT_EQ(https->address.text(), "two.example:443");
  EXPECT_EQ(https->password, "p:ss");
  for (const char* excepted : {"localhost:443", "a.inside.example:443", "inside.example:443", "10.1.2.3:443",
                               "port.example:8443", "a.port.example:8443"})
    EXPECT_FALSE(proxies->for_destination(to(excepted), false)) << excepted;
  for (const char* through : {"notinside.example:443", "11.1.2.3:443", "port.example:443"})
    EXPECT_TRUE(proxies->for_destination(to(through), false)) << through;
}

TEST(UpstreamProxies, OfOtherKindsAreAnError) {
  EXPECT_EQ(UpstreamProxy::parse("socks5://proxy:1080").error().code, ErrorCode::unsupported);
  EXPECT_FALSE(UpstreamProxy::parse("http://").has_value());
  EXPECT_FALSE(UpstreamProxy::parse("http://u:%zz@proxy:1").has_value());
}

TEST(ResolverSpec, IsReadFromResolvConf) {
  auto folder = *TemporaryDirectory::create();
  auto path = folder.path() / "resolv.conf";
  ASSERT_TRUE(write_file_atomic(path,
                                "# comment\nsearch example.com\nnameserver 192.0.2.1\r\n"
                                "nameserver\t2001:db8::1 \nnameserver fe80::1%eth0\noptions ndots:2\n")
                  .has_value());
  auto spec = ResolverSpec::of_host(path);
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->servers, (std::vector<std::string>{"192.0.2.1", "[2001:db8::1]"}));
  ASSERT_TRUE(write_file_atomic(path, "search example.com\n").has_value());
  EXPECT_FALSE(ResolverSpec::of_host(path).has_value());
}

TEST(TrustSpec, AFileWithoutACertificateIsAnError) {
  auto folder = *TemporaryDirectory::create();
  ASSERT_TRUE(write_file_atomic(folder.path() / "empty.pem", "nothing").has_value());
  TrustSpec trust{.system_bundle = {}, .extra_ca = {folder.path() / "empty.pem"}, .system = false};
  EXPECT_FALSE(trust.pem().has_value());
  trust.extra_ca = {folder.path() / "none.pem"};
  EXPECT_FALSE(trust.pem().has_value());
}

}  // namespace
}  // namespace anchorhold::egress
