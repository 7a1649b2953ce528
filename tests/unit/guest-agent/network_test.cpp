// The guest's side of its way out: what it answers to DNS and SOCKS, and how it passes bytes on. The host is
// a unix socket that the test holds.
#include "network/network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"
#include "network/connect_head.h"
#include "network/dns_answer.h"
#include "network/java_keystore.h"
#include "network/names.h"
#include "network/trust.h"

namespace anchorhold::guest {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const NameTable::Time start{};

TEST(Names, HaveOneAddressEachAndKeepIt) {
  NameTable names;
  std::set<std::uint32_t> addresses;
  for (int i = 0; i < 1000; ++i) {
    auto name = "n" + std::to_string(i) + ".example";
    auto address = names.address_of(name, start);
    ASSERT_TRUE(address);
    EXPECT_TRUE(is_synthetic(*address));
    EXPECT_TRUE(addresses.insert(*address).second);
    EXPECT_EQ(names.name_of(*address, start), name);
    EXPECT_EQ(names.address_of(name, start), address);
  }
  EXPECT_FALSE(names.name_of(own_synthetic_address, start));
}

TEST(Names, MakeRoomOnlyWhenOneIsUnused) {
  NameTable names({.names = 2, .unused = minutes(10)});
  auto a = names.address_of("a", start);
  auto b = names.address_of("b", start + seconds(1));
  EXPECT_FALSE(names.address_of("c", start + minutes(9)));
  EXPECT_EQ(names.name_of(*a, start + minutes(9)), "a");  // used again: b is the older one now
  auto c = names.address_of("c", start + minutes(11) + seconds(1));
  ASSERT_TRUE(c);
  EXPECT_EQ(names.name_of(*a, start + minutes(12)), "a");
  EXPECT_FALSE(names.name_of(*b, start + minutes(12)));
  EXPECT_NE(*c, *b);
  EXPECT_EQ(names.size(), 2u);
}

std::string query(std::string_view name, char type,
                  std::string_view flags = std::string_view("\x01\x00", 2)) {
  std::string bytes = "\x12\x34";
  bytes += flags;
  bytes += std::string("\x00\x01\x00\x00\x00\x00\x00\x00", 8);
  while (!name.empty()) {
    auto label = name.substr(0, name.find('.'));
    bytes += static_cast<char>(label.size());
    bytes += label;
    name.remove_prefix(std::min(label.size() + 1, name.size()));
  }
  bytes += std::string("\x00\x00", 2) + type + std::string("\x00\x01", 2);
  return bytes;
}

TEST(Dns, GivesEachHostItsAddressAndNothingElse) {
  NameTable names;
  auto answer = answer_query(query("Www.Example.COM", 1), names, start);
  ASSERT_GT(answer.size(), 16u);
  EXPECT_EQ(answer.substr(0, 4), "\x12\x34\x81\x80");
  std::uint32_t address = 0;
  for (char c : answer.substr(answer.size() - 4)) address = address << 8 | static_cast<unsigned char>(c);
  EXPECT_EQ(names.name_of(address, start), "www.example.com");

  auto code = [&](const std::string& bytes) {
    auto reply = answer_query(bytes, names, start);
    return reply.size() < 12 ? -1 : (reply[3] & 0x0f) + 16 * reply[7];
  };
  EXPECT_EQ(code(query("www.example.com", 16)), 0);                     // TXT
  EXPECT_EQ(code(query("1.2.0.192.in-addr.arpa", 12)), 3);              // nobody
  EXPECT_EQ(code(query("a b.example", 1)), 3);                          // no host
  EXPECT_EQ(code(query(std::string(63, 'x') + ".example", 1)), 16);     // one answer
  EXPECT_EQ(code(query("x", 1, std::string_view("\x28\x00", 2))), 4);   // an update
  EXPECT_EQ(code(query("x", 1, std::string_view("\x81\x80", 2))), -1);  // an answer
  EXPECT_EQ(code("\x12\x34"), -1);
  auto cut = query("www.example.com", 1);
  for (std::size_t size = 12; size < cut.size(); ++size) EXPECT_EQ(code(cut.substr(0, size)), 1) << size;
  auto local = answer_query(query("db.localhost", 1), names, start);
  EXPECT_EQ(local.substr(local.size() - 4), std::string("\x7f\x00\x00\x01", 4));
  local = answer_query(query("db.localhost", 28), names, start);
  EXPECT_EQ(local.substr(local.size() - 16), std::string(15, '\0') + '\x01');
}

TEST(Dns, GivesTheSameAddressAsIPv6) {
  NameTable names;
  auto answer = answer_query(query("www.example.com", 28), names, start);
  ASSERT_GT(answer.size(), 28u);
  EXPECT_EQ(answer.substr(answer.size() - 18, 2), std::string("\x00\x10", 2));
  Address6 address{};
  std::copy(answer.end() - 16, answer.end(), address.begin());
  auto inside = inside_synthetic6(address);
  ASSERT_TRUE(inside);
  EXPECT_EQ(names.name_of(*inside, start), "www.example.com");
  EXPECT_EQ(synthetic6(*inside), address);
  EXPECT_FALSE(inside_synthetic6(own_address6));
  FindName find = [&](std::uint32_t asked) { return names.name_of(asked, start); };
  EXPECT_EQ(target_of(address, 443, find), "www.example.com:443");
  EXPECT_EQ(target_of(synthetic6(last_synthetic_address), 443, find), std::nullopt);
  EXPECT_EQ(target_of(own_address6, 443, find), "[2001:2::1]:443");
}

TEST(Socks, BecomesConnectByName) {
  FindName find = [](std::uint32_t address) -> std::optional<std::string> {
    if (address == first_synthetic_address) return "known.example";
    return std::nullopt;
  };
  using Kind = SocksRequest::Kind;
  EXPECT_EQ(read_socks("\x05", false, find).kind, Kind::incomplete);
  EXPECT_EQ(read_socks(std::string("\x05\x01\x00", 3), false, find).used, 3u);
  EXPECT_EQ(read_socks("\x05\x01\x02", false, find).reply, "\x05\xff");
  struct Case {
    std::string bytes;
    Kind kind;
    std::string target;
  };
  const Case cases[] = {
      {std::string("\x05\x01\x00\x03\x0b"
                   "Example.com\x01\xbb",
                   18),
       Kind::connect, "example.com:443"},
      {std::string("\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50", 10), Kind::connect, "192.0.2.1:80"},
      {std::string("\x05\x01\x00\x01\xc6\x12\x01\x00\x00\x50", 10), Kind::connect, "known.example:80"},
      {std::string("\x05\x01\x00\x01\xc6\x12\x01\x01\x00\x50", 10), Kind::refused, ""},
      {std::string("\x05\x01\x00\x04"
                   "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01"
                   "\x00\x16",
                   22),
       Kind::connect, "[2001:db8::1]:22"},
      {std::string("\x05\x01\x00\x04"
                   "\xfd\x61\x6e\x63\x68\x6f\x72\x64\0\0\0\0\xc6\x12\x01\x00"
                   "\x00\x50",
                   22),
       Kind::connect, "known.example:80"},
      {std::string("\x05\x01\x00\x03\x05"
                   "a\r\nb:\x01\xbb",
                   12),
       Kind::refused, ""},
      {std::string("\x05\x03\x00\x01\xc0\x00\x02\x01\x00\x50", 10), Kind::refused, ""},  // UDP
      {std::string("\x05\x01\x00\x03\x0b"
                   "Exam",
                   9),
       Kind::incomplete, ""},
  };
  for (const auto& each : cases) {
    auto request = read_socks(each.bytes, true, find);
    EXPECT_EQ(request.kind, each.kind) << each.target;
    EXPECT_EQ(request.target, each.target);
  }
}

TEST(ConnectAnswer, IsReadToItsHeadAndNoFurther) {
  using Kind = ConnectReply::Kind;
  EXPECT_EQ(read_connect_reply("HTTP/1.1 200 OK\r\n").kind, Kind::incomplete);
  auto open = read_connect_reply("HTTP/1.1 200 OK\r\n\r\nhello");
  EXPECT_EQ(open.kind, Kind::open);
  EXPECT_EQ(open.head_bytes, 19u);
  EXPECT_EQ(read_connect_reply("HTTP/1.1 403 No\r\n\r\n").kind, Kind::refused);
  EXPECT_EQ(read_connect_reply("SSH-2.0").kind, Kind::broken);
  EXPECT_EQ(read_connect_reply("HTTP/1.1 200 " + std::string(max_head_bytes, 'x')).kind, Kind::broken);
}

TEST(Trust, TheLastAuthorityIsTheOneThatIsTrusted) {
  auto root = TemporaryDirectory::create("trust");
  ASSERT_TRUE(root);
  const std::string first = "-----BEGIN CERTIFICATE-----\nfirst\n-----END CERTIFICATE-----\n";
  const std::string second = "-----BEGIN CERTIFICATE-----\nsecond\n-----END CERTIFICATE-----\n";
  std::filesystem::create_directories(root->path() / "etc/ssl/certs");
  const auto bundle = root->path() / "etc/ssl/certs/ca-certificates.crt";
  ASSERT_TRUE(write_file_atomic(bundle, "of the image\n"));
  ASSERT_TRUE(trust_authority(first, root->path()));
  EXPECT_NE(read_file(bundle, 4096)->find("first"), std::string::npos);
  ASSERT_TRUE(trust_authority(second, root->path()));
  EXPECT_EQ(*read_file(bundle, 4096), bundle_with("of the image\n", second));
  EXPECT_EQ(read_file(bundle, 4096)->find("first"), std::string::npos);
  EXPECT_FALSE(trust_authority("no certificate", root->path()));
  // OpenSSL finds the bundle in its default place, Java what is in it.
  EXPECT_EQ(std::filesystem::read_symlink(root->path() / "usr/lib/ssl/cert.pem"),
            "/etc/ssl/certs/ca-certificates.crt");
  EXPECT_TRUE(std::filesystem::exists(root->path() / "etc/ssl/certs/java/cacerts"));
}

TEST(Trust, JavaFindsTheCertificatesOfABundle) {
  const std::string pem =
      "# one\n-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
      "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"
      "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nY3V0";
  EXPECT_EQ(certificates_in(pem), (std::vector<std::string>{"one", "two"}));
  std::string store = java_keystore({"one"});
  const std::string expected(
      "\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\2\0\x0b"
      "authority-0\0\0\0\0\0\0\0\0\0\5X.509\0\0\0\3one",
      51);
  EXPECT_EQ(store.substr(0, expected.size()), expected);
  EXPECT_EQ(store.size(), expected.size() + 20) << "a digest follows";
}

// A network on ports of its own whose host is this test.
class Passing : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    auto network = Network::start({0, 0, 0}, [this]() -> Result<UniqueFd> {
      auto [ours, theirs] = ANCHORHOLD_TRY(socket_pair(SOCK_STREAM));
      ANCHORHOLD_CHECK(set_nonblocking(theirs.get()));
      std::lock_guard lock(mutex_);
      dialled_.push_back(std::move(ours));
      changed_.notify_all();
      return std::move(theirs);
    });
    ASSERT_TRUE(network) << network.error().message;
    network_ = std::move(*network);
  }

  UniqueFd connect_to(std::uint16_t port) {
    UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return client;
  }
  UniqueFd next_stream() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return !dialled_.empty(); }));
    if (dialled_.empty()) return {};
    UniqueFd stream = std::move(dialled_.front());
    dialled_.erase(dialled_.begin());
    return stream;
  }
  static void say(int fd, std::string_view bytes) {
    EXPECT_TRUE(write_all(fd, std::as_bytes(std::span(bytes))));
  }
  static std::string hear(int fd, std::size_t size) {
    std::string bytes(size, '\0');
    auto got = read_full(fd, std::as_writable_bytes(std::span(bytes)));
    bytes.resize(got ? *got : 0);
    return bytes;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFd> dialled_;
  std::unique_ptr<Network> network_;
};

TEST_F(Passing, ProxyRequestsArePassedOnAsTheyAreAndHalfCloseReachesTheOtherSide) {
  auto client = connect_to(network_->ports().proxy);
  say(client.get(), "CONNECT a:1 HTTP/1.1\r\n\r\n");
  auto host = next_stream();
  EXPECT_EQ(hear(host.get(), 24), "CONNECT a:1 HTTP/1.1\r\n\r\n");
  shutdown(client.get(), SHUT_WR);
  EXPECT_EQ(hear(host.get(), 1), "");
  say(host.get(), "HTTP/1.1 403 No\r\n\r\n");
  host.reset();
  EXPECT_EQ(hear(client.get(), 100), "HTTP/1.1 403 No\r\n\r\n");
}

TEST_F(Passing, MuchIsPassedOnWholeToASlowReader) {
  auto client = connect_to(network_->ports().proxy);
  std::string sent(8 << 20, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 2654435761u >> 13);
  sent[0] = 'G';
  std::thread sender([&] {
    say(client.get(), sent);
    shutdown(client.get(), SHUT_WR);
  });
  auto host = next_stream();
  EXPECT_TRUE(hear(host.get(), sent.size() + 1) == sent);
  sender.join();
}

TEST_F(Passing, SocksIsToldWhatTheHostDecided) {
  const std::string request(
      "\x05\x01\x00\x05\x01\x00\x03\x07"
      "a.b.com\x01\xbb"
      "more",
      3 + 14 + 4);
  for (bool open : {true, false}) {
    auto client = connect_to(network_->ports().proxy);
    say(client.get(), request);
    EXPECT_EQ(hear(client.get(), 2), socks_greeting);
    auto host = next_stream();
    const std::string wanted = connect_request("a.b.com:443") + "more";
    EXPECT_EQ(hear(host.get(), wanted.size()), wanted);
    say(host.get(), open ? "HTTP/1.1 200 OK\r\n\r\nhello" : "HTTP/1.1 403 No\r\n\r\n");
    EXPECT_EQ(hear(client.get(), 10), socks_reply(open ? socks_ok : socks_not_allowed));
    EXPECT_EQ(hear(client.get(), 5), open ? "hello" : "");
  }
}

TEST_F(Passing, WhoWasNotRedirectedIsNotServed) {
  auto client = connect_to(network_->ports().transparent);
  EXPECT_EQ(hear(client.get(), 1), "");
}

TEST_F(Passing, DnsIsAnsweredOverTcpAsWell) {
  auto client = connect_to(network_->ports().dns);
  std::string asked = query("example.com", 1);
  std::string framed{'\0', static_cast<char>(asked.size())};
  say(client.get(), framed + asked);
  auto size = hear(client.get(), 2);
  ASSERT_EQ(size.size(), 2u);
  auto answer = hear(client.get(), static_cast<unsigned char>(size[1]));
  EXPECT_EQ(answer.substr(0, 4), "\x12\x34\x81\x80");
}

}  // namespace
}  // namespace anchorhold::guest
