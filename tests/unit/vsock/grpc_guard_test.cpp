// A guest that speaks HTTP/2 by hand on a port that carries gRPC: the announcement of a message is enough to
// end it.
#include <gmock/gmock.h>
#include <thread>

#include "fixture.h"
#include "vsock/ports.h"

namespace anchorhold::vsock::testing {
namespace {

enum Type : unsigned { data = 0, headers = 1, rst_stream = 3, settings = 4 };
constexpr unsigned end_stream = 1, padded = 8;

std::string frame(unsigned type, unsigned flags, std::uint32_t call, const std::string& payload) {
  std::string bytes;
  for (int shift : {16, 8, 0}) bytes += static_cast<char>(payload.size() >> shift);
  bytes += static_cast<char>(type);
  bytes += static_cast<char>(flags);
  for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(call >> shift);
  return bytes + payload;
}
std::string message(std::uint32_t announced, std::size_t sent, char compressed = 0) {
  std::string bytes(1, compressed);
  for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(announced >> shift);
  return bytes + std::string(sent, 'm');
}

class GrpcGuard : public WithDevice {
 protected:
  void SetUp() override {
    folder_.emplace(*TemporaryDirectory::create());
    VsockDeviceCallbacks callbacks;
    callbacks.violated = [this](std::uint32_t port, std::string what) {
      violated_.put({port, std::move(what)});
    };
    auto device = start_device(folder_->path() / "v", std::move(callbacks));
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    connect();
    listen(host_port::agent);
  }
  // Sends in pieces of `step` bytes; what reaches the host is the same bytes.
  void expect_passes(const std::string& bytes, std::size_t step) {
    auto pair = guest_dials(next_port_++, host_port::agent);
    ASSERT_TRUE(pair);
    send(pair->guest, bytes, step);
    EXPECT_EQ(read_text(pair->host.get(), bytes.size()), bytes);
  }
  void expect_refused(const std::string& bytes, const std::string& why) {
    for (std::size_t step : {std::size_t{1}, bytes.size()}) {
      auto pair = guest_dials(next_port_++, host_port::agent);
      ASSERT_TRUE(pair);
      send(pair->guest, bytes, step);
      ASSERT_TRUE(pair->guest.pump([&] { return pair->guest.reset; }));
      auto report = violated_.take();
      ASSERT_TRUE(report);
      EXPECT_EQ(report->first, host_port::agent);
      EXPECT_THAT(report->second, ::testing::HasSubstr(why));
      // The host sees the end, and never the whole of it.
      EXPECT_LT(read_text(pair->host.get(), 1u << 20).size(), bytes.size());
    }
  }
  static void send(GuestStream& guest, const std::string& bytes, std::size_t step) {
    for (std::size_t at = 0; at < bytes.size() && !guest.reset;) {
      std::size_t count = guest.write(bytes_of(bytes).subspan(at, std::min(step, bytes.size() - at)));
      at += count;
      if (count == 0 && !guest.pump([&] { return guest.credit() > 0 || guest.reset; })) return;
    }
  }

  Mailbox<std::pair<std::uint32_t, std::string>> violated_;
  std::uint32_t next_port_ = 50000;
};

TEST_F(GrpcGuard, OrdinaryTrafficPassesInAnyCut) {
  std::string bytes = frame(settings, 0, 0, std::string(12, 's')) + frame(headers, 4, 1, "head") +
                      frame(data, 0, 1, message(20, 5)) + frame(headers, 4, 3, "head") +
                      frame(data, 0, 3, message(3, 3) + message(0, 0) + message(4, 4)) +
                      frame(data, padded, 1, std::string(1, '\3') + std::string(15, 'm') + "ppp") +
                      frame(data, end_stream, 1, "") + frame(headers, 4 | end_stream, 3, "trailer");
  for (std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{7}, bytes.size()})
    expect_passes(bytes, step);
}

TEST_F(GrpcGuard, ClientsPrefacePasses) {
  expect_passes(
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0, "") + frame(data, 0, 1, message(3, 3)), 5);
}

TEST_F(GrpcGuard, LargestMessagePasses) {
  std::string bytes;
  std::string whole = message(max_grpc_message_bytes, max_grpc_message_bytes);
  for (std::size_t at = 0; at < whole.size(); at += 16384)
    bytes += frame(data, 0, 1, whole.substr(at, 16384));
  auto pair = guest_dials(next_port_++, host_port::agent);
  ASSERT_TRUE(pair);
  std::string got;
  std::thread reader([&] { got = read_text(pair->host.get(), bytes.size()); });
  send(pair->guest, bytes, GuestDriver::payload_limit);
  reader.join();
  EXPECT_EQ(got, bytes);
}

TEST_F(GrpcGuard, MessageThatIsTooLong) {
  expect_refused(frame(settings, 0, 0, "") + frame(data, 0, 1, message(max_grpc_message_bytes + 1, 100)),
                 "a message of 4194305 bytes");
  expect_refused(frame(data, 0, 1, message(0x40000000, 0)), "a message of 1073741824 bytes");
}

TEST_F(GrpcGuard, MessageThatIsTooLongBehindAGoodOne) {
  expect_refused(frame(data, 0, 1, message(3, 3) + message(0xffffffff, 9)), "a message of 4294967295 bytes");
}

TEST_F(GrpcGuard, LengthThatIsCutByFramesAndPadding) {
  auto bad = message(0x7fffffff, 0);
  expect_refused(frame(data, 0, 1, bad.substr(0, 2)) + frame(data, 0, 3, message(5, 5)) +
                     frame(data, padded, 1, std::string(1, '\2') + bad.substr(2) + "pp"),
                 "a message of 2147483647 bytes");
}

TEST_F(GrpcGuard, CompressedMessage) {
  expect_refused(frame(data, 0, 1, message(10, 10, 1)), "a compressed message");
}

TEST_F(GrpcGuard, PaddingThatIsLongerThanItsFrame) {
  expect_refused(frame(data, padded, 1, "\x09rest"), "more padding than payload");
  expect_refused(frame(data, padded, 1, ""), "without a payload");
}

TEST_F(GrpcGuard, CallThatEndedMayBeginAnew) {
  // A call that is reset in the middle of a message leaves nothing behind.
  expect_passes(
      frame(data, 0, 1, message(100, 5)) + frame(rst_stream, 0, 1, "code") + frame(data, 0, 1, message(2, 2)),
      100);
}

TEST_F(GrpcGuard, ManyUnfinishedMessagesAreBounded) {
  auto pair = guest_dials(next_port_++, host_port::agent);
  ASSERT_TRUE(pair);
  std::thread reader([&] { read_text(pair->host.get(), 4u << 20); });
  std::string bytes;
  for (std::uint32_t call = 1; call < 70'000; ++call) bytes += frame(data, 0, call, message(100, 1));
  send(pair->guest, bytes, GuestDriver::payload_limit);
  EXPECT_TRUE(pair->guest.pump([&] { return pair->guest.reset; }));
  reader.join();
  auto report = violated_.take();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->second, ::testing::HasSubstr("too many messages"));
}

}  // namespace
}  // namespace anchorhold::vsock::testing
