// The two protocols of the sealed processes, byte for byte.
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "mounts/keeper_protocol.h"
#include "mounts/mode.h"
#include "mounts/report.h"

namespace anchorhold::mounts {
namespace {

std::string bytes_of(const RequestHeader& header, std::string_view payload = {}) {
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes.append(payload);
}

Result<Request> parse(const std::string& bytes, std::size_t descriptors) {
  return parse_request(std::as_bytes(std::span(bytes)), descriptors);
}

RequestHeader header_of(Verb verb, std::size_t descriptors, std::string_view name = {},
                        std::string_view new_name = {}) {
  auto header = make_request(verb, name, new_name);
  header.descriptors = static_cast<std::uint16_t>(descriptors);
  return header;
}

TEST(KeeperProtocol, AWholeRequestIsTakenApart) {
  auto header = header_of(Verb::rename, 2, "from", "to");
  header.flags = rename_flag::no_replace;
  auto bytes = bytes_of(header);
  auto request = parse(bytes, 2);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->name, "from");
  EXPECT_EQ(request->new_name, "to");
  EXPECT_TRUE(request->payload.empty());
  // Views of the message itself, not of something that is gone.
  EXPECT_GE(request->name.data(), bytes.data());
  EXPECT_LT(request->name.data(), bytes.data() + bytes.size());
}

TEST(KeeperProtocol, PayloadAndNamesOfTheGreatestSizes) {
  auto header = header_of(Verb::set_xattr, 1, std::string(255, 'n'));
  header.payload_size = max_payload_bytes;
  auto bytes = bytes_of(header, std::string(max_payload_bytes, 'v'));
  auto request = parse(bytes, 1);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->name.size(), 255u);
  EXPECT_EQ(request->payload.size(), max_payload_bytes);
}

TEST(KeeperProtocol, EveryMalformationIsFound) {
  struct {
    const char* what;
    std::function<void(RequestHeader&)> spoil;
  } cases[] = {
      {"magic", [](auto& h) { h.magic ^= 1; }},
      {"verb 0", [](auto& h) { h.verb = static_cast<Verb>(0); }},
      {"verb 16", [](auto& h) { h.verb = static_cast<Verb>(16); }},
      {"verb 65535", [](auto& h) { h.verb = static_cast<Verb>(65535); }},
      {"descriptor count", [](auto& h) { h.descriptors = 2; }},
      {"flags", [](auto& h) { h.flags = 1u << 31; }},
      {"mode bits", [](auto& h) { h.mode = 0100644; }},
      {"valid bits", [](auto& h) { h.valid = 1u << 30; }},
      {"valid unused", [](auto& h) { h.valid = 1; }},
      {"payload size", [](auto& h) { h.payload_size = 1; }},
      {"payload size overflow", [](auto& h) { h.payload_size = ~0u; }},
      {"offset unused", [](auto& h) { h.offset = 1; }},
      {"size unused", [](auto& h) { h.size = 1; }},
      {"times unused", [](auto& h) { h.access_time.seconds = 1; }},
      {"nanoseconds", [](auto& h) { h.modify_time.nanoseconds = 1'000'000'000; }},
      {"reserved in time", [](auto& h) { h.access_time.reserved = 1; }},
      {"name size beyond field", [](auto& h) { h.name_size = 257; }},
      {"name size 65535", [](auto& h) { h.name_size = 65535; }},
      {"NUL in name", [](auto& h) { h.name[1] = '\0'; }},
      {"bytes behind name", [](auto& h) { h.name[200] = 'x'; }},
      {"second name unused",
       [](auto& h) {
         h.new_name_size = 1;
         h.new_name[0] = 'x';
       }},
      {"bytes of a second name", [](auto& h) { h.new_name[0] = 'x'; }},
  };
  auto good = header_of(Verb::create, 1, "name");
  ASSERT_TRUE(parse(bytes_of(good), 1));
  for (auto& test : cases) {
    auto header = good;
    test.spoil(header);
    EXPECT_FALSE(parse(bytes_of(header), 1)) << test.what;
  }
  EXPECT_FALSE(parse(bytes_of(good), 0));
  EXPECT_FALSE(parse(bytes_of(good), 2));
  EXPECT_FALSE(parse(bytes_of(good) + "x", 1));
  EXPECT_FALSE(parse("", 1));
  for (std::size_t size = 0; size < sizeof(RequestHeader); size += 7)
    EXPECT_FALSE(parse(bytes_of(good).substr(0, size), 1)) << size;
}

TEST(KeeperProtocol, SymlinkTargetsAreBoundedAndWithoutNul) {
  auto header = header_of(Verb::make_symlink, 1, "name");
  auto with = [&](const std::string& target) {
    auto h = header;
    h.payload_size = static_cast<std::uint32_t>(target.size());
    return bytes_of(h, target);
  };
  EXPECT_TRUE(parse(with(std::string(max_symlink_bytes, 't')), 1));
  EXPECT_FALSE(parse(with(std::string(max_symlink_bytes + 1, 't')), 1));
  EXPECT_FALSE(parse(with(""), 1));
  EXPECT_FALSE(parse(with(std::string("a\0b", 3)), 1));
}

TEST(KeeperProtocol, Names) {
  for (std::string_view good : {"a", "...", ".a", "a.", " ", "\xff", "-"})
    EXPECT_TRUE(is_valid_name(good)) << good;
  EXPECT_TRUE(is_valid_name(std::string(255, 'a')));
  for (std::string_view bad : {std::string_view(""), std::string_view("."), std::string_view(".."),
                               std::string_view("a/b"), std::string_view("a\0", 2)})
    EXPECT_FALSE(is_valid_name(bad)) << bad;
  EXPECT_FALSE(is_valid_name(std::string(256, 'a')));
}

TEST(Reports, RoundTripAndCut) {
  Report report{.kind = ReportKind::refused,
                .error = EACCES,
                .lost = 3,
                .operation = "unlink",
                .path = std::string("odd\n\xff\0name", 10),
                .reason = "because"};
  auto bytes = encode_report(report);
  auto parsed = parse_report(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->kind, report.kind);
  EXPECT_EQ(parsed->error, EACCES);
  EXPECT_EQ(parsed->lost, 3u);
  EXPECT_EQ(parsed->operation, "unlink");
  EXPECT_EQ(parsed->path, report.path);
  EXPECT_EQ(parsed->reason, "because");
  report.path.assign(100'000, 'p');
  report.reason.assign(100'000, 'r');
  bytes = encode_report(report);
  EXPECT_LE(bytes.size(), max_report_bytes);
  EXPECT_TRUE(parse_report(std::as_bytes(std::span(bytes))));
}

TEST(Reports, WhatDoesNotAddUpIsRefused) {
  auto good = encode_report({.kind = ReportKind::warning, .operation = "o", .path = "p", .reason = "r"});
  for (std::size_t size = 0; size < good.size(); ++size) {
    auto part = good.substr(0, size);
    EXPECT_FALSE(parse_report(std::as_bytes(std::span(part)))) << size;
  }
  auto longer = good + "x";
  EXPECT_FALSE(parse_report(std::as_bytes(std::span(longer))));
  for (std::size_t position : {0u, 4u, 6u, 8u, 10u}) {
    auto spoiled = good;
    spoiled[position] = '\x7f';
    EXPECT_FALSE(parse_report(std::as_bytes(std::span(spoiled)))) << position;
  }
}

TEST(Reports, AFullSocketNeverBlocksAndTheLossIsTold) {
  auto sockets = socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(sockets);
  Reporter reporter(std::move(sockets->first));
  constexpr int sent = 2000;
  for (int i = 0; i < sent; ++i)
    reporter.send({.kind = ReportKind::refused, .operation = "unlink", .reason = "again"});
  ASSERT_TRUE(set_nonblocking(sockets->second.get()));
  int received = 0;
  while (auto report = receive_report(sockets->second.get())) {
    ASSERT_TRUE(*report);
    ++received;
  }
  ASSERT_LT(received, sent);
  reporter.send({.kind = ReportKind::warning, .operation = "after"});
  auto last = receive_report(sockets->second.get());
  ASSERT_TRUE(last);
  EXPECT_EQ((*last)->lost, static_cast<std::uint32_t>(sent - received));
}

TEST(Modes, TheirWords) {
  for (Mode mode : {Mode::ro, Mode::rw, Mode::rw_no_delete}) EXPECT_EQ(parse_mode(to_string(mode)), mode);
  for (auto bad : {"", "RO", "rw ", "r"}) EXPECT_FALSE(parse_mode(bad));
  EXPECT_GT(strictness(Mode::ro), strictness(Mode::rw_no_delete));
  EXPECT_GT(strictness(Mode::rw_no_delete), strictness(Mode::rw));
}

}  // namespace
}  // namespace anchorhold::mounts
