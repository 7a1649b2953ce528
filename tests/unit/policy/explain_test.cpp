#include "policy/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/configuration.h"

namespace anchorhold::policy {
namespace {

using enum EgressAction;

constexpr std::string_view text = R"([egress]
default = "ask"
[[egress.rule]]
host = "*.example.com"
action = "allow"
[[egress.rule]]
host = "bad.example.com"
action = "deny"
[[egress.rule]]
host = "api.example.net"
ports = [443]
action = "allow"
methods = ["GET", "HEAD"]
paths = ["/v1/*"]
credential = "work"
max_upload = "10MiB"
[[egress.rule]]
host = "pinned.example.net"
ports = [443, 5222]
action = "allow"
tunnel_only = true
[[egress.rule]]
host = "10.0.0.0/8"
ports = [5432]
action = "ask"
)";

EgressPolicy policy() {
  auto configuration = *parse_configuration(text, "config.toml");
  EgressPolicy policy;
  policy.user = configuration.egress.rules;
  policy.unnamed = configuration.egress.unnamed;
  EgressRule kept;
  kept.host = *HostPattern::parse("kept.example.org");
  kept.action = allow;
  kept.source = "answers.toml:5";
  policy.kept = {kept};
  return policy;
}

TEST(Explain, EveryKindOfDestination) {
  struct Case {
    std::string target, method, path;
    EgressAction verdict;
    std::optional<Passage> passage;
    std::vector<std::string> words;  // each in some line
  };
  for (const auto& c : std::vector<Case>{
           {"WWW.Example.com.",
            "",
            "",
            allow,
            Passage::tunnelled,
            {"WWW.Example.com. is understood as www.example.com:443",
             "Allowed: www.example.com:443 is allowed by the rule for *.example.com (config.toml:3)",
             "The rule is for the ports 443, 80",
             "passed through unread; their TLS must be for www.example.com"}},
           {"www.example.com:80",
            "",
            "",
            allow,
            Passage::tunnelled,
            {"plain HTTP; each must be for www.example.com"}},
           {"www.example.com:8443", "", "", ask, Passage::tunnelled, {"no rule names www.example.com:8443"}},
           {"www.example.com", "DELETE", "/", allow, Passage::tunnelled, {"Method and path do not matter"}},
           {"bücher.example.com",
            "",
            "",
            allow,
            Passage::tunnelled,
            {"understood as xn--bcher-kva.example.com:443"}},
           {"bad.example.com", "", "", deny, {}, {"Denied: ", "config.toml:6"}},
           {"example.com",
            "",
            "",
            ask,
            Passage::tunnelled,
            {"Asked about: no rule names example.com:443. With nobody to answer it is denied"}},
           {"evil-example.com", "", "", ask, Passage::tunnelled, {"no rule names evil-example.com"}},
           {"api.example.net",
            "",
            "",
            allow,
            Passage::opened,
            {"config.toml:9", "Connections are opened", "method GET or HEAD, path /v1/*, credential work",
             "at most 10 MiB"}},
           {"api.example.net", "GET", "/v1/items?x=/v2", allow, Passage::opened, {"satisfies the rule"}},
           {"api.example.net", "POST", "", deny, Passage::opened, {"the method POST is not allowed"}},
           {"api.example.net", "", "/v2", deny, Passage::opened, {"the path is not allowed"}},
           {"api.example.net", "", "/v1/../v2", deny, Passage::opened, {"dot segments"}},
           {"pinned.example.net:5222", "", "", allow, Passage::never_opened, {"never opened"}},
           {"10.1.2.3:5432", "", "", ask, Passage::tunnelled, {"It is a private", "config.toml:22"}},
           {"0x0a.1.2.3:5432", "", "", ask, Passage::tunnelled, {"understood as 10.1.2.3:5432"}},
           {"169.254.169.254", "", "", ask, Passage::tunnelled, {"It is a link-local address"}},
           {"kept.example.org", "", "", allow, Passage::tunnelled, {"answers.toml:5"}},
           {"ex%61mple.com", "", "", deny, {}, {"is refused, whatever the rules say"}},
           {"example.com:0", "", "", deny, {}, {"is refused, whatever the rules say"}},
           {"https://example.com/", "", "", deny, {}, {"is refused, whatever the rules say"}},
           {"", "", "", deny, {}, {"is refused, whatever the rules say"}},
       }) {
    ExplainQuery query{c.target, c.method, c.path};
    const auto rules = policy();
    auto explanation = explain(rules, query);
    std::string all;
    for (const auto& line : in_words(explanation, query)) all += line + "\n";
    EXPECT_EQ(explanation.verdict(), c.verdict) << all;
    EXPECT_EQ(explanation.passage, c.passage) << all;
    for (const auto& word : c.words) EXPECT_THAT(all, ::testing::HasSubstr(word));
    if (explanation.destination) {
      EXPECT_EQ(explanation.decision.action, decide(rules, *explanation.destination, Person::present).action);
      EXPECT_EQ(explanation.alone.action, decide(rules, *explanation.destination, Person::absent).action);
    }
  }
}

TEST(Explain, WhileTheRulesAreNotKnownEverythingIsDenied) {
  auto rules = policy();
  rules.session = rules.kept;
  rules.broken = "config.toml:3: unknown key";
  for (const char* target : {"www.example.com", "kept.example.org", "other.example"}) {
    auto explanation = explain(rules, {target, "", ""});
    EXPECT_EQ(explanation.verdict(), deny);
    EXPECT_THAT(explanation.decision.reason, ::testing::HasSubstr("config.toml:3"));
  }
}

}  // namespace
}  // namespace anchorhold::policy
