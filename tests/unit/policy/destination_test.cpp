#include "policy/destination.h"

#include <gtest/gtest.h>

namespace anchorhold::policy {
namespace {

using namespace std::string_view_literals;

TEST(Host, EverySpellingBecomesOne) {
  struct Case {
    std::string_view text, canonical;
  };
  for (const auto& c : {
           Case{"example.com", "example.com"},
           Case{"EXAMPLE.Com.", "example.com"},
           Case{"bücher.example", "xn--bcher-kva.example"},
           Case{"BÜCHER.example", "xn--bcher-kva.example"},
           Case{"xn--bcher-kva.example", "xn--bcher-kva.example"},
           Case{"faß.example", "xn--fa-hia.example"},
           Case{"ｅｘａｍｐｌｅ.com", "example.com"},
           Case{"example。com", "example.com"},
           Case{"a_b.example", "a_b.example"},
           Case{"localhost", "localhost"},
           Case{"127.0.0.1", "127.0.0.1"},
           Case{"127.1", "127.0.0.1"},
           Case{"2130706433", "127.0.0.1"},
           Case{"0x7f000001", "127.0.0.1"},
           Case{"0x7f.1", "127.0.0.1"},
           Case{"0177.0.0.01", "127.0.0.1"},
           Case{"017700000001", "127.0.0.1"},
           Case{"127.0.0.1.", "127.0.0.1"},
           Case{"0", "0.0.0.0"},
           Case{"１２７.0.0.1", "127.0.0.1"},
           Case{"0xa9fea9fe", "169.254.169.254"},
           Case{"2852039166", "169.254.169.254"},
           Case{"169.16689662", "169.254.169.254"},
           Case{"[::1]", "[::1]"},
           Case{"[0:0:0:0:0:0:0:1]", "[::1]"},
           Case{"[2001:DB8:0:0::0001]", "[2001:db8::1]"},
           Case{"[::ffff:169.254.169.254]", "169.254.169.254"},
           Case{"[::ffff:a9fe:a9fe]", "169.254.169.254"},
       }) {
    auto host = Host::parse(c.text);
    ASSERT_TRUE(host) << c.text << ": " << host.error().message;
    EXPECT_EQ(host->text(), c.canonical) << c.text;
    auto again = Host::parse(host->text());
    ASSERT_TRUE(again) << host->text();
    EXPECT_EQ(*again, *host);
  }
}

TEST(Host, WhatIsNotExactlyOneHostIsRefused) {
  std::string long_label(64, 'a'), long_name;
  for (int i = 0; i < 64; ++i) long_name += "abc.";
  for (std::string_view text : {""sv,
                                "."sv,
                                ".."sv,
                                "example..com"sv,
                                ".example.com"sv,
                                "example.com.."sv,
                                "exa mple.com"sv,
                                " example.com"sv,
                                "example.com\0.evil.example"sv,
                                "example.com\n"sv,
                                "a%2eb"sv,
                                "user@example.com"sv,
                                "example.com/path"sv,
                                "example.com:443"sv,
                                "_a.example"sv,
                                "a_.example"sv,
                                "-a.example"sv,
                                "a-.example"sv,
                                "ex*mple.com"sv,
                                "256.0.0.1"sv,
                                "1.2.3.4.5"sv,
                                "1.2.3.0x1ffffffff"sv,
                                "127.0.0.09"sv,
                                "example.1"sv,
                                "4294967296"sv,
                                "1..2"sv,
                                "[::1"sv,
                                "::1"sv,
                                "[::1]x"sv,
                                "[fe80::1%eth0]"sv,
                                "[::1%25lo]"sv,
                                "[]"sv,
                                "[1.2.3.4]"sv,
                                "[::127.0.0.1]"sv,
                                "[64:ff9b::7f00:1]"sv,
                                "[2002:7f00:1::]"sv,
                                "[2001:0:7f00:1::]"sv,
                                "[::ffff:0:7f00:1]"sv,
                                "[2001:db8::5efe:7f00:1]"sv,
                                "[64:ff9b:1::1]"sv,
                                "xn--a.example"sv,
                                "xn--example-.com"sv,
                                "xn--BCHER-.example"sv,
                                "a\xff.example"sv,
                                "a\xc0\xaf.example"sv,
                                "\xe2\x80\xae"
                                "example.com"sv,
                                "exam\xc2\xadple.com\x7f"sv,
                                "\xc2\xad"sv,
                                "\xc2\xad."sv,
                                std::string_view(long_label),
                                std::string_view(long_name),
                                "http:"sv,
                                "a?b"sv,
                                "a#b"sv,
                                "a\\b"sv}) {
    auto host = Host::parse(text);
    ASSERT_FALSE(host) << "'" << text << "' became " << host->text();
    EXPECT_EQ(host.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_FALSE(Host::parse(std::string(100'000, 'a')));
}

TEST(Destination, PortsAreExplicitAndChecked) {
  EXPECT_EQ(Destination::parse("example.com:8443", {})->text(), "example.com:8443");
  EXPECT_EQ(Destination::parse("Example.com", 443)->text(), "example.com:443");
  EXPECT_EQ(Destination::parse("[::1]:80", {})->text(), "[::1]:80");
  EXPECT_EQ(Destination::parse("[::1]", 80)->text(), "[::1]:80");
  for (auto text : {"example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:+80",
                    "example.com:080000", "example.com:80:80", "example.com: 80", "example.com:80 ", ":80",
                    "[::1]80", "::1:80", "a:b@c:80"})
    EXPECT_FALSE(Destination::parse(text, {})) << text;
}

TEST(Address, ClassesByRegistry) {
  struct Case {
    std::string_view text;
    AddressClass address_class;
  };
  using enum AddressClass;
  for (const auto& c : {Case{"8.8.8.8", global},
                        Case{"0.0.0.0", unspecified},
                        Case{"0.1.2.3", unspecified},
                        Case{"10.255.0.1", private_use},
                        Case{"100.63.255.255", global},
                        Case{"100.64.0.1", shared},
                        Case{"100.127.255.255", shared},
                        Case{"100.100.100.200", metadata},
                        Case{"127.255.255.254", loopback},
                        Case{"169.254.169.254", link_local},
                        Case{"168.63.129.16", metadata},
                        Case{"172.15.0.1", global},
                        Case{"172.31.255.255", private_use},
                        Case{"172.32.0.0", global},
                        Case{"192.0.0.192", metadata},
                        Case{"192.168.1.1", private_use},
                        Case{"198.19.0.1", reserved},
                        Case{"203.0.113.9", reserved},
                        Case{"224.0.0.1", multicast},
                        Case{"255.255.255.255", reserved},
                        Case{"[::]", unspecified},
                        Case{"[::1]", loopback},
                        Case{"[fe80::1]", link_local},
                        Case{"[fd00:ec2::254]", metadata},
                        Case{"[fd12::1]", private_use},
                        Case{"[fec0::1]", private_use},
                        Case{"[ff02::1]", multicast},
                        Case{"[2001:db8::1]", reserved},
                        Case{"[2606:4700::1111]", global},
                        Case{"[100::1]", reserved},
                        Case{"[4000::1]", reserved},
                        Case{"[::ffff:127.0.0.1]", loopback}}) {
    auto host = Host::parse(c.text);
    ASSERT_TRUE(host) << c.text;
    EXPECT_EQ(classify(*host->address()), c.address_class)
        << c.text << " is " << to_string(classify(*host->address()));
  }
}

TEST(HostPattern, MatchesWhatItNamesAndNothingElse) {
  struct Case {
    std::string_view pattern, host;
    bool matches;
  };
  for (const auto& c :
       {Case{"example.com", "example.com", true}, Case{"example.com", "EXAMPLE.com.", true},
        Case{"example.com", "evil-example.com", false}, Case{"example.com", "www.example.com", false},
        Case{"*.example.com", "www.example.com", true}, Case{"*.example.com", "a.b.example.com", true},
        Case{"*.example.com", "example.com", false}, Case{"*.example.com", "evilexample.com", false},
        Case{"*.Bücher.example", "a.xn--bcher-kva.example", true}, Case{"192.0.2.0/24", "192.0.2.77", true},
        Case{"192.0.2.0/24", "192.0.3.1", false}, Case{"192.0.2.0/24", "example.com", false},
        Case{"127.0.0.1", "0x7f.1", true}, Case{"127.0.0.1", "127.0.0.2", false},
        Case{"2001:db8::/32", "[2001:db8:1::5]", true}, Case{"2001:db8::/32", "[2001:db9::]", false},
        Case{"[::1]", "[::1]", true}, Case{"0.0.0.0/0", "[::1]", false},
        Case{"0.0.0.0/0", "8.8.8.8", true}}) {
    auto pattern = HostPattern::parse(c.pattern);
    ASSERT_TRUE(pattern) << c.pattern << ": " << pattern.error().message;
    EXPECT_EQ(pattern->matches(*Host::parse(c.host)), c.matches) << c.pattern << " and " << c.host;
    EXPECT_EQ(*HostPattern::parse(pattern->text()), *pattern) << pattern->text();
  }
  for (auto text : {"", "*", "*.", "*.com", "*.*.com", "a.*.com", "*example.com", "192.0.2.1/24",
                    "192.0.2.0/33", "example.com/8", "::/129", "2001:db8::1/32", "192.0.2.0/", "*.1.2.3.4"})
    EXPECT_FALSE(HostPattern::parse(text)) << text;
}

}  // namespace
}  // namespace anchorhold::policy
