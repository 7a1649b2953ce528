#include "egress/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace anchorhold::egress {
namespace {

TEST(Control, MessagesPassWithTheirDescriptors) {
  auto [left, right] = *socket_pair(SOCK_SEQPACKET);
  ControlMessage message{.type = ControlType::stream, .code = 7, .id = 0x1122334455667788};
  message.payload = std::string("a\0b", 3);
  message.descriptor = *duplicate(0);
  ASSERT_TRUE(send_control(left.get(), message).has_value());
  auto received = receive_control(right.get());
  ASSERT_TRUE(received.has_value() && received->has_value());
  EXPECT_EQ((*received)->type, ControlType::stream);
  EXPECT_EQ((*received)->code, 7u);
  EXPECT_EQ((*received)->id, 0x1122334455667788u);
  EXPECT_EQ((*received)->payload, message.payload);
  EXPECT_TRUE((*received)->descriptor);
  EXPECT_FALSE(receive_control(right.get())->has_value()) << "there is no other";
  left.reset();
  EXPECT_EQ(receive_control(right.get()).error().code, ErrorCode::unavailable);
}

TEST(Control, WhatIsNoMessageIsRefused) {
  std::string good = encode_control({.type = ControlType::sealed});
  EXPECT_TRUE(parse_control(good).has_value());
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parse_control(std::string_view(good).substr(0, size)).has_value());
  std::string wrong = good;
  wrong[0] ^= 1;
  EXPECT_FALSE(parse_control(wrong).has_value());
  EXPECT_FALSE(parse_control(good + std::string(max_control_payload + 1, 'x')).has_value());
  EXPECT_FALSE(parse_control(encode_control({.type = static_cast<ControlType>(40)})).has_value());
}

TEST(Control, EventsAndQuestionsComeBackAsTheyWere) {
  EventReport report{
      .kind = EventKind::deny, .host = "example.com", .port = 443, .cause = "no \"rule\" \xff"};
  report.violation = true;
  auto event = parse_event(static_cast<std::uint32_t>(report.kind), encode_event(report));
  ASSERT_TRUE(event.has_value()) << event.error().message;
  EXPECT_EQ(event->host, "example.com");
  EXPECT_TRUE(event->violation);
  EXPECT_FALSE(parse_event(99, encode_event(report)).has_value());
  EXPECT_FALSE(parse_event(1, "{}").has_value());
  EXPECT_FALSE(parse_event(1, "not json").has_value());

  Question question{
      .id = 5, .destination = *policy::Destination::parse("[2001:db8::1]:8443", {}), .reason = "why"};
  question.bytes_waiting = 12;
  auto asked = parse_question(5, encode_question(question));
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->destination, question.destination);
  EXPECT_EQ(asked->bytes_waiting, 12u);
  EXPECT_FALSE(
      parse_question(5, R"({"destination": "no port", "reason": "", "method": "", "path": "", "bytes": 0})")
          .has_value());
}

TEST(Control, AConfigurationComesBackAsItWas) {
  Configuration configuration;
  policy::EgressRule rule;
  rule.host = *policy::HostPattern::parse("*.example.com");
  rule.action = policy::EgressAction::allow;
  rule.ports = {8443};
  rule.methods = {"GET"};
  rule.paths = {"/v1/*"};
  rule.credential = "example";
  rule.deny_headers = {"x-fetch-url"};
  rule.deny_json_fields = {"image_url"};
  rule.max_upload = ByteSize{10};
  using enum policy::GitOperation;
  rule.git = {{{"team/*"}, {fetch}, {}, {}}, {{"app"}, {push, deletes, lfs}, {"refs/*"}, {"ci.skip"}}};
  rule.tunnel_only = true;
  rule.source = "config.toml:3";
  configuration.rules.user = {rule};
  configuration.rules.answers = {rule, rule};
  configuration.rules.kept = {rule, rule, rule};
  configuration.rules.broken = "config.toml:3: no";
  configuration.rules.managed_floor = true;
  configuration.rules.unnamed = policy::EgressAction::ask;
  configuration.person = policy::Person::present;
  configuration.credentials["example"] = {CredentialForm::Kind::header, "x-api-key", "user"};
  configuration.session_token = "token";
  configuration.resolver.servers = {"192.0.2.1"};
  configuration.proxies.https = *UpstreamProxy::parse("https://u:p%40@proxy.example:3128");
  configuration.limits.connections = 5;
  auto parsed = parse_configuration_message(encode_configuration(configuration));
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  const auto& back = parsed->rules.user.at(0);
  EXPECT_EQ(back.host, rule.host);
  EXPECT_EQ(back.ports, rule.ports);
  EXPECT_EQ(back.action, rule.action);
  EXPECT_EQ(back.methods, rule.methods);
  EXPECT_EQ(back.paths, rule.paths);
  EXPECT_EQ(back.credential, rule.credential);
  EXPECT_EQ(back.deny_headers, rule.deny_headers);
  EXPECT_EQ(back.deny_json_fields, rule.deny_json_fields);
  EXPECT_EQ(back.max_upload, rule.max_upload);
  ASSERT_EQ(back.git.size(), 2u);
  EXPECT_EQ(back.git[0].repositories, rule.git[0].repositories);
  EXPECT_EQ(back.git[1].operations, rule.git[1].operations);
  EXPECT_EQ(back.git[1].refs, rule.git[1].refs);
  EXPECT_EQ(back.git[1].push_options, rule.git[1].push_options);
  EXPECT_TRUE(back.tunnel_only);
  EXPECT_EQ(back.source, rule.source);
  EXPECT_EQ(parsed->rules.answers.size(), 2u);
  EXPECT_EQ(parsed->rules.kept.size(), 3u);
  EXPECT_EQ(parsed->rules.broken, "config.toml:3: no");
  EXPECT_TRUE(parsed->rules.managed_floor);
  EXPECT_EQ(parsed->rules.unnamed, policy::EgressAction::ask);
  EXPECT_EQ(parsed->person, policy::Person::present);
  EXPECT_EQ(parsed->credentials.at("example").header_name, "x-api-key");
  EXPECT_EQ(parsed->proxies.https->password, "p@");
  EXPECT_FALSE(parsed->proxies.http);
  EXPECT_EQ(parsed->limits.connections, 5u);
}

TEST(Control, AConfigurationWithAnythingMissingIsNone) {
  EXPECT_FALSE(parse_configuration_message("").has_value());
  EXPECT_FALSE(parse_configuration_message("{}").has_value());
  std::string text = encode_configuration({});
  ASSERT_TRUE(parse_configuration_message(text).has_value());
  auto at = text.find("\"managed\"");
  text[at + 1] = 'M';
  EXPECT_FALSE(parse_configuration_message(text).has_value());
}

}  // namespace
}  // namespace anchorhold::egress
