// Streams through the real sealed process, seen from the guest's rings and from the host's sockets.
#include <gmock/gmock.h>
#include <thread>

#include "fixture.h"
#include "vsock/ports.h"

namespace anchorhold::vsock::testing {
namespace {

using ::testing::HasSubstr;

class Streams : public WithDevice {};

TEST_F(Streams, GuestDialsAndBytesGoBothWays) {
  connect();
  listen(2048);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->guest.write(bytes_of("hello host")), 10u);
  EXPECT_EQ(read_text(pair->host.get(), 10), "hello host");
  ASSERT_TRUE(write_all(pair->host.get(), bytes_of("hello guest")));
  ASSERT_TRUE(pair->guest.pump([&] { return pair->guest.data.size() >= 11; }));
  EXPECT_EQ(text_of(pair->guest.data), "hello guest");
}

TEST_F(Streams, HostDials) {
  connect();
  Mailbox<std::string> outcome;
  Mailbox<UniqueFd> streams;
  device_->dial(7000, patience, [&](Result<UniqueFd> stream) {
    if (stream) streams.put(std::move(*stream));
    outcome.put(stream ? "connected" : stream.error().message);
  });
  auto request = driver_->receive();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->packet.operation, 1);
  EXPECT_EQ(request->packet.destination_port, 7000u);
  EXPECT_EQ(request->packet.source_cid, host_cid);
  GuestStream guest{*driver_, 7000, request->packet.source_port};
  guest.handle(*request);
  EXPECT_EQ(outcome.take(), "connected");
  auto stream = streams.take();
  ASSERT_TRUE(stream);
  guest.write(bytes_of("served"));
  EXPECT_EQ(read_text(stream->get(), 6), "served");
}

TEST_F(Streams, DialToAPortNobodyListensOnFails) {
  connect();
  Mailbox<Error> outcome;
  device_->dial(7001, patience,
                [&](Result<UniqueFd> stream) { outcome.put(stream ? Error{} : stream.error()); });
  auto request = driver_->receive();
  ASSERT_TRUE(request);
  GuestStream guest{*driver_, 7001, request->packet.source_port};
  guest.say(3);
  auto error = outcome.take();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::unavailable);
  EXPECT_THAT(error->message, HasSubstr("7001"));
}

TEST_F(Streams, DialThatIsNeverAnsweredEndsAtItsLimit) {
  connect();
  auto stream = device_->dial(7002, Milliseconds(20));
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, ErrorCode::deadline_exceeded);
  auto statistics = device_->statistics();
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->open_streams, 0u);
  // The guest's answer comes too late, and it is told so.
  GuestStream guest{*driver_, 7002, 0x40000000};
  guest.say(2);
  ASSERT_TRUE(guest.pump([&] { return guest.reset; }));
}

TEST_F(Streams, OnlyPortsTheHostOpenedExist) {
  connect();
  listen(2048);
  GuestStream guest{*driver_, 50001, 2049};
  guest.say(1);
  ASSERT_TRUE(guest.pump([&] { return guest.reset; }));
  EXPECT_EQ(refused_.take(), std::pair(2049u, std::uint64_t{1}));
  EXPECT_TRUE(guest_dials(50002, 2048));
  ASSERT_TRUE(device_->unlisten(2048));
  // The statistics answer comes after the device has read the message before it.
  ASSERT_TRUE(device_->statistics());
  GuestStream late{*driver_, 50003, 2048};
  late.say(1);
  ASSERT_TRUE(late.pump([&] { return late.reset; }));
  auto statistics = device_->statistics();
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->refused, 2u);
  EXPECT_EQ(statistics->accepted, 1u);
}

TEST_F(Streams, FloodOfRefusedDialsIsReportedInBundles) {
  connect();
  constexpr int attempts = 2000;
  std::thread guest([&] {
    for (std::uint32_t i = 0; i < attempts; ++i) {
      GuestStream stream{*driver_, 10000 + i, 9};
      stream.say(1);
      if (!stream.pump([&] { return stream.reset; })) ADD_FAILURE() << "dial " << i << " was not refused";
    }
  });
  std::uint64_t counted = 0;
  int reports = 0;
  while (counted < attempts) {
    auto report = refused_.take();
    if (!report) break;
    counted += report->second;
    ++reports;
  }
  guest.join();
  EXPECT_EQ(counted, std::uint64_t{attempts});
  EXPECT_LT(reports, attempts / 2);
}

TEST_F(Streams, PacketsWithAForgedSourceAreDropped) {
  connect();
  listen(2048);
  GuestStream guest{*driver_, 50000, 2048};
  for (std::uint64_t cid : {2ull, 4ull, 0x1'0000'0003ull}) {
    auto forged = guest.packet(1);
    forged.source_cid = cid;
    driver_->send(forged);
  }
  auto elsewhere = guest.packet(1);
  elsewhere.destination_cid = 1;
  driver_->send(elsewhere);
  // A true one comes through behind them, and it is the only one.
  ASSERT_TRUE(guest_dials(50000, 2048));
  auto statistics = device_->statistics();
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->dropped_packets, 4u);
  EXPECT_EQ(statistics->accepted, 1u);
}

TEST_F(Streams, SeqpacketAndUnknownOperationsAreReset) {
  connect();
  listen(2048);
  GuestStream guest{*driver_, 50000, 2048};
  auto seqpacket = guest.packet(1);
  seqpacket.type = 2;
  driver_->send(seqpacket);
  auto answer = driver_->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->packet.operation, 3);
  EXPECT_EQ(answer->packet.type, 2);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  pair->guest.say(77);
  ASSERT_TRUE(pair->guest.pump([&] { return pair->guest.reset; }));
  EXPECT_EQ(read_text(pair->host.get(), 1), "");
}

TEST_F(Streams, DataToNoStreamIsReset) {
  connect();
  GuestStream guest{*driver_, 50000, 2048};
  guest.peer_buffer = 100;
  guest.write(bytes_of("x"));
  ASSERT_TRUE(guest.pump([&] { return guest.reset; }));
}

// The guest sends 100 MB with the credit it gets while the host sends 100 MB, in one stream.
void exchange_bulk(GuestStream& guest, int host) {
  constexpr std::size_t total = 100'000'000, chunk = 1 << 20;
  std::vector<std::byte> block(chunk);
  fill(block, 7);
  Hash sent_by_guest, got_by_host, sent_by_host, got_by_guest;
  std::thread host_writer([&] {
    for (std::size_t at = 0; at < total;) {
      auto part = std::span<const std::byte>(block).first(std::min(chunk, total - at));
      if (!write_all(host, part)) break;
      sent_by_host.add(part);
      at += part.size();
    }
    ::shutdown(host, SHUT_WR);
  });
  std::size_t host_count = 0;
  std::thread host_reader([&] {
    std::vector<std::byte> buffer(chunk);
    for (;;) {
      ssize_t got = read(host, buffer.data(), buffer.size());
      if (got <= 0) break;
      got_by_host.add(std::span<const std::byte>(buffer).first(static_cast<std::size_t>(got)));
      host_count += static_cast<std::size_t>(got);
    }
  });
  std::size_t guest_sent = 0, guest_got = 0;
  bool ended = false;
  auto collect = [&] {
    got_by_guest.add(guest.data);
    guest_got += guest.data.size();
    guest.data.clear();
  };
  while (guest_sent < total || !(guest.shutdown & 2)) {
    if (guest_sent < total) {
      std::size_t at = guest_sent % chunk;
      auto part = std::span<const std::byte>(block).subspan(at, std::min(chunk - at, total - guest_sent));
      std::size_t count = guest.write(part);
      sent_by_guest.add(part.first(count));
      guest_sent += count;
      if (count == 0 && !guest.pump([&] { return guest.credit() > 0 || guest.reset || !guest.data.empty(); }))
        break;
      if (guest_sent == total && !std::exchange(ended, true)) guest.say(4, 2);
    } else if (!guest.pump([&] { return (guest.shutdown & 2) || guest.reset || !guest.data.empty(); })) {
      break;
    }
    while (auto next = guest.driver.receive(Milliseconds(0)))
      if (guest.takes(next->packet)) guest.handle(*next);
    collect();
    if (guest.reset) break;
  }
  collect();
  host_writer.join();
  host_reader.join();
  EXPECT_EQ(guest_sent, total);
  EXPECT_EQ(host_count, total);
  EXPECT_EQ(got_by_host.value, sent_by_guest.value);
  EXPECT_EQ(guest_got, total);
  EXPECT_EQ(got_by_guest.value, sent_by_host.value);
}

TEST_F(Streams, BulkBothWaysAtOnceArrivesByteForByte) {
  connect();
  listen(2048);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  exchange_bulk(pair->guest, pair->host.get());
}

TEST_F(Streams, BulkWithoutEventIndex) {
  connect(false);
  listen(2048);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  exchange_bulk(pair->guest, pair->host.get());
}

}  // namespace
}  // namespace anchorhold::vsock::testing
