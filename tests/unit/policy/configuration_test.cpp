#include "policy/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anchorhold::policy {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view whole = R"(
[egress]
default = "deny"
ask_timeout = "30s"
extra_ca = ["/etc/ssl/company.pem"]

[[egress.rule]]
host = "*.Example.com"
ports = [443, 8443]
action = "allow"
methods = ["GET", "HEAD"]
paths = ["/v1/*"]
credential = "example"
deny_headers = ["X-Fetch-URL"]
deny_json_fields = ["Image_URL"]
max_upload = "10MiB"

[[egress.rule]]
host = "10.0.0.0/8"
action = "deny"

[[egress.rule]]
host = "pinned.example"
action = "ask"
tunnel_only = true
)";

TEST(Configuration, EveryKeyIsRead) {
  auto configuration = parse_configuration(whole, "config.toml");
  ASSERT_TRUE(configuration) << configuration.error().message;
  const auto& egress = configuration->egress;
  EXPECT_EQ(egress.unnamed, EgressAction::deny);
  EXPECT_EQ(egress.ask_timeout, std::chrono::seconds(30));
  EXPECT_EQ(egress.extra_ca, (std::vector<std::filesystem::path>{"/etc/ssl/company.pem"}));
  ASSERT_EQ(egress.rules.size(), 3u);
  EXPECT_EQ(egress.rules[0].host.text(), "*.example.com");
  EXPECT_EQ(egress.rules[0].ports, (std::vector<std::uint16_t>{443, 8443}));
  EXPECT_EQ(egress.rules[0].methods, (std::vector<std::string>{"GET", "HEAD"}));
  EXPECT_EQ(egress.rules[0].deny_headers, (std::vector<std::string>{"x-fetch-url"}));
  EXPECT_EQ(egress.rules[0].deny_json_fields, (std::vector<std::string>{"image_url"}));
  EXPECT_EQ(egress.rules[0].max_upload, ByteSize::mib(10));
  EXPECT_EQ(egress.rules[0].source, "config.toml:7");
  EXPECT_EQ(egress.rules[1].action, EgressAction::deny);
  EXPECT_EQ(egress.rules[1].ports, (std::vector<std::uint16_t>{443, 80}));
  EXPECT_TRUE(egress.rules[2].tunnel_only);
}

TEST(Configuration, EmptyAsks) {
  auto configuration = parse_configuration("", "config.toml");
  ASSERT_TRUE(configuration);
  EXPECT_EQ(configuration->egress.unnamed, EgressAction::ask);
  EXPECT_TRUE(configuration->egress.rules.empty());
}

TEST(Configuration, FaultsNameLineAndKey) {
  struct Case {
    std::string_view text, expected;
  };
  const std::string rule = "[[egress.rule]]\nhost = \"example.com\"\naction = \"allow\"\n";
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"[egress", "config.toml:1"},
           {"[egres]\n", "config.toml:1: unknown key 'egres'"},
           {"[egress]\nfoo = 1\n", "config.toml:2: unknown key 'foo' in [egress]"},
           {"[egress]\ndefault = \"allow\"\n", "config.toml:2: default: must be \"ask\" or \"deny\""},
           {"[egress]\ndefault = true\n", "must be a text"},
           {"[egress]\nask_timeout = \"soon\"\n", "'soon' is not a duration"},
           {"[egress]\nextra_ca = [\"ca.pem\"]\n", "absolute paths"},
           {"[egress]\nrule = 5\n", "written as [[egress.rule]]"},
           {"[[egress.rule]]\naction = \"allow\"\n", "config.toml:1: a rule needs a host"},
           {"[[egress.rule]]\nhost = \"example.com\"\n", "a rule needs an action"},
           {"[[egress.rule]]\nhost = \"*\"\naction = \"allow\"\n", "config.toml:2: host"},
           {rule + "ports = []\n", "config.toml:4: ports: must be a list of port numbers"},
           {rule + "ports = [0]\n", "from 1 to 65535"},
           {rule + "ports = [\"443\"]\n", "from 1 to 65535"},
           {rule + "methods = [\"get\"]\n", "in upper case"},
           {rule + "paths = [\"v1\"]\n", "begin with '/'"},
           {rule + "paths = [\"/a*b\"]\n", "at the end only"},
           {rule + "deny_headers = [\"a b\"]\n", "names of HTTP headers"},
           {rule + "deny_json_fields = [\"\u00fcrl\"]\n", "names of JSON fields"},
           {rule + "max_upload = \"lots\"\n", "'lots' is not a size"},
           {rule + "tunnel_only = \"yes\"\n", "true or false"},
           {rule + "tunnel_only = true\nmethods = [\"GET\"]\n", "never opened"},
           {rule + "unknown = 1\n", "config.toml:4: unknown key 'unknown'"},
           {"[[egress.rule]]\nhost = \"a.example\"\naction = \"deny\"\npaths = [\"/x\"]\n",
            "a deny rule denies everything"},
       }) {
    auto configuration = parse_configuration(text, "config.toml");
    ASSERT_FALSE(configuration) << text;
    EXPECT_THAT(configuration.error().message, HasSubstr(expected)) << text;
  }
}

TEST(Configuration, ATextIsReadWholeOrRefused) {
  EXPECT_FALSE(parse_configuration(whole.substr(0, whole.find("HEAD")), "config.toml"));
  EXPECT_FALSE(parse_configuration(std::string(max_configuration_bytes + 1, '#'), "config.toml"));
}

// Once, and of where it is wrong.
TEST(Configuration, AFaultFurtherInIsNamedWhereItIs) {
  auto configuration = parse_configuration(
      "[[egress.rule]]\nhost = \"example.com\"\naction = \"allow\"\nnonsense = 1\n", "c.toml");
  ASSERT_FALSE(configuration);
  EXPECT_THAT(configuration.error().message, ::testing::StartsWith("c.toml:4: unknown key 'nonsense'"));
}

TEST(Configuration, RulesOfTheCommandLine) {
  EXPECT_EQ(parse_rule_argument("Example.com", EgressAction::allow)->host.text(), "example.com");
  EXPECT_EQ(parse_rule_argument("example.com:8443", EgressAction::allow)->ports,
            (std::vector<std::uint16_t>{8443}));
  EXPECT_EQ(parse_rule_argument("[::1]:80", EgressAction::allow)->ports, (std::vector<std::uint16_t>{80}));
  EXPECT_EQ(parse_rule_argument("::1", EgressAction::deny)->host.text(), "[::1]");
  EXPECT_EQ(parse_rule_argument("10.0.0.0/8", EgressAction::deny)->host.text(), "10.0.0.0/8");
  for (auto text : {"", "example.com:", "example.com:0", "example.com:http", "*", ":443", "a b"})
    EXPECT_FALSE(parse_rule_argument(text, EgressAction::allow)) << text;
}

}  // namespace
}  // namespace anchorhold::policy
