// How streams end, and what a stream that stalls does to the others.
#include <array>
#include <future>
#include <gmock/gmock.h>

#include "fixture.h"
#include "process_facts.h"
#include "vsock/ports.h"

namespace anchorhold::vsock::testing {
namespace {

using anchorhold::testing::status_kib;

constexpr std::uint32_t shutdown_receive = 1, shutdown_send = 2, shutdown_both = 3;

class Closing : public WithDevice {
 protected:
  void SetUp() override {
    files_ = anchorhold::testing::raise_descriptor_limit();
    ASSERT_GT(files_, 0u);
    WithDevice::SetUp();
    if (HasFatalFailure()) return;
    connect();
    listen(2048);
  }
  // Returns once the device has taken every packet before: it answers in order a packet that belongs to no
  // stream.
  bool device_took_everything(GuestStream& guest) {
    GuestStream nobody{*driver_, 60000, 9};
    nobody.say(5);
    while (auto next = driver_->receive()) {
      if (guest.takes(next->packet)) guest.handle(*next);
      if (nobody.takes(next->packet)) return true;
    }
    return false;
  }
  // How many bytes the guest can send to a host that does not read.
  std::size_t fill_up(GuestStream& guest) {
    std::vector<std::byte> block(GuestDriver::payload_limit);
    fill(block, 3);
    for (std::size_t total = 0;;) {
      std::size_t count = guest.write(block);
      total += count;
      if (count > 0) continue;
      // The credit is used up. When the device has taken all of it, its next word on credit is the last one.
      if (!device_took_everything(guest)) return 0;
      guest.told_credit = false;
      guest.say(7);
      if (!guest.pump([&] { return guest.told_credit; })) return 0;
      if (guest.credit() == 0) return total;
    }
  }

  rlim_t files_ = 0;  // how many descriptors this process may have, and has from here on
};

TEST_F(Closing, GuestHalfClosesAndTheHostAnswersStill) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  auto& guest = pair->guest;
  guest.write(bytes_of("question"));
  guest.say(4, shutdown_send);
  EXPECT_EQ(read_text(pair->host.get(), 100), "question");  // until the end
  ASSERT_TRUE(write_all(pair->host.get(), bytes_of("answer")));
  pair->host.reset();
  ASSERT_TRUE(guest.pump([&] { return (guest.shutdown & shutdown_send) || guest.reset; }));
  EXPECT_EQ(text_of(guest.data), "answer");
}

TEST_F(Closing, HostHalfClosesAndTheGuestAnswersStill) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  auto& guest = pair->guest;
  ASSERT_TRUE(write_all(pair->host.get(), bytes_of("question")));
  ::shutdown(pair->host.get(), SHUT_WR);
  ASSERT_TRUE(guest.pump([&] { return guest.shutdown != 0; }));
  EXPECT_EQ(guest.shutdown, shutdown_send);
  EXPECT_EQ(text_of(guest.data), "question");
  guest.write(bytes_of("answer"));
  guest.say(4, shutdown_both);
  EXPECT_EQ(read_text(pair->host.get(), 100), "answer");
  ASSERT_TRUE(guest.pump([&] { return guest.reset; }));
}

TEST_F(Closing, HostClosesAndWhatItWroteArrivesFirst) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  std::vector<std::byte> block(150'000);
  fill(block, 5);
  ASSERT_TRUE(write_all(pair->host.get(), block));
  pair->host.reset();
  ASSERT_TRUE(pair->guest.pump([&] { return pair->guest.shutdown == shutdown_both; }));
  EXPECT_EQ(pair->guest.data, block);
  // The guest confirms; then the name is free.
  pair->guest.say(3);
  EXPECT_TRUE(guest_dials(50000, 2048));
}

TEST_F(Closing, HostThatClosesWithoutReadingResetsTheStream) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  pair->guest.write(bytes_of("nobody reads this"));
  // It is in the host's socket once the device has given the packet back.
  while (driver_->unsent() > 0) ASSERT_TRUE(front_end_->wait_used(GuestDriver::tx, 0));
  pair->host.reset();
  ASSERT_TRUE(pair->guest.pump([&] { return pair->guest.reset; }));
}

TEST_F(Closing, HostStopsReadingOnly) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  auto& guest = pair->guest;
  ::shutdown(pair->host.get(), SHUT_RD);
  guest.write(bytes_of("too late"));
  ASSERT_TRUE(guest.pump([&] { return guest.shutdown != 0; }));
  EXPECT_EQ(guest.shutdown, shutdown_receive);
  ASSERT_TRUE(write_all(pair->host.get(), bytes_of("still sending")));
  ASSERT_TRUE(guest.pump([&] { return guest.data.size() == 13; }));
}

TEST_F(Closing, GuestStopsReadingOnly) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  pair->guest.say(4, shutdown_receive);
  pair->guest.write(bytes_of("still sending"));
  EXPECT_EQ(read_text(pair->host.get(), 13), "still sending");
  EXPECT_EQ(::send(pair->host.get(), "x", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(Closing, GuestResets) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  pair->guest.say(3);
  EXPECT_EQ(read_text(pair->host.get(), 1), "");
  auto statistics = device_->statistics();
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->open_streams, 0u);
}

TEST_F(Closing, WhatTheGuestSentBeforeItClosedReachesAHostThatReadsLater) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  auto& guest = pair->guest;
  std::size_t total = fill_up(guest);
  ASSERT_GT(total, 256u << 10);
  guest.say(4, shutdown_both);
  guest.say(3);  // a guest that does not wait for the answer, as Linux does after eight seconds
  // The guest may use the name again while the old bytes still wait.
  auto next = guest_dials(50000, 2048);
  ASSERT_TRUE(next);
  EXPECT_EQ(read_text(pair->host.get(), 4u << 20).size(), total);
  next->guest.write(bytes_of("new"));
  EXPECT_EQ(read_text(next->host.get(), 3), "new");
}

TEST_F(Closing, StreamThatNobodyReadsStopsOnlyItself) {
  auto stalled = guest_dials(50000, 2048);
  auto lively = guest_dials(50001, 2048);
  ASSERT_TRUE(stalled && lively);
  std::size_t total = fill_up(stalled->guest);
  // The host's socket, and the backlog of one stream.
  EXPECT_GE(total, 256u << 10);
  EXPECT_LE(total, 2u << 20);
  for (int i = 0; i < 100; ++i) {
    lively->guest.write(bytes_of("ping"));
    ASSERT_EQ(read_text(lively->host.get(), 4), "ping");
    ASSERT_TRUE(write_all(lively->host.get(), bytes_of("pong")));
    lively->guest.data.clear();
    ASSERT_TRUE(lively->guest.pump([&] { return lively->guest.data.size() == 4; }));
  }
  // Once it is read, it goes on, and nothing was lost.
  EXPECT_EQ(read_text(stalled->host.get(), total).size(), total);
  ASSERT_TRUE(stalled->guest.pump([&] { return stalled->guest.credit() > 0; }));
  stalled->guest.write(bytes_of("on"));
  EXPECT_EQ(read_text(stalled->host.get(), 2), "on");
}

TEST_F(Closing, GuestThatGivesNoCreditStopsOnlyThatStream) {
  auto stalled = guest_dials(50000, 2048);
  auto lively = guest_dials(50001, 2048);
  ASSERT_TRUE(stalled && lively);
  stalled->guest.stall = true;
  ASSERT_TRUE(set_nonblocking(stalled->host.get()));
  std::vector<std::byte> block(64 << 10);
  fill(block, 9);
  std::size_t written = 0, taken_at_stall = 0;
  auto write_more = [&] {
    for (;;) {
      ssize_t count = ::send(stalled->host.get(), block.data(), block.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      written += static_cast<std::size_t>(count);
    }
  };
  // Until the guest holds all the credit it gave, and the socket is full behind it.
  while (stalled->guest.received < 256u << 10) {
    write_more();
    auto next = driver_->receive();
    ASSERT_TRUE(next);
    if (stalled->guest.takes(next->packet)) stalled->guest.handle(*next);
  }
  write_more();
  taken_at_stall = stalled->guest.received;
  EXPECT_EQ(taken_at_stall, 256u << 10);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(write_all(lively->host.get(), bytes_of("ping")));
    lively->guest.data.clear();
    ASSERT_TRUE(lively->guest.pump([&] { return lively->guest.data.size() == 4; }));
  }
  // The guest reads after all: the rest comes.
  auto& guest = stalled->guest;
  guest.stall = false;
  guest.told_forwarded = guest.received;
  guest.say(6);
  ASSERT_TRUE(guest.pump([&] { return guest.received >= written; }));
  EXPECT_EQ(guest.received, written);
}

TEST_F(Closing, GuestThatIgnoresItsCreditIsReset) {
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  auto& guest = pair->guest;
  fill_up(guest);
  guest.peer_buffer += 1u << 20;  // the guest pretends there is more
  std::vector<std::byte> block(GuestDriver::payload_limit);
  guest.write(block);
  ASSERT_TRUE(guest.pump([&] { return guest.reset; }));
  auto statistics = device_->statistics();
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->resets, 1u);
}

TEST_F(Closing, PortsOpenAndCloseForWhatTheGuestDialsNext) {
  for (std::uint32_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(device_->unlisten(2048));
    ASSERT_FALSE(guest_dials(20000 + 2 * i, 2048)) << i;
    listen(2048);
    ASSERT_TRUE(guest_dials(20001 + 2 * i, 2048)) << i;
  }
}

TEST_F(Closing, AThousandStreamsOneAfterAnother) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    auto pair = guest_dials(20000 + i % 50, 2048);
    ASSERT_TRUE(pair) << i;
    pair->guest.write(bytes_of("hi"));
    ASSERT_EQ(read_text(pair->host.get(), 2), "hi");
    if (i % 2 == 0) {
      pair->guest.say(4, shutdown_both);
      EXPECT_EQ(read_text(pair->host.get(), 1), "");
    } else {
      pair->host.reset();
      ASSERT_TRUE(pair->guest.pump([&] { return pair->guest.shutdown == shutdown_both; }));
      pair->guest.say(3);
      continue;
    }
    ASSERT_TRUE(pair->guest.pump([&] { return pair->guest.reset; }));
  }
  ASSERT_TRUE(guest_dials(50000, 2048));
  auto statistics = device_->statistics();
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->accepted, 1001u);
  EXPECT_EQ(statistics->open_streams, 1u);
}

TEST_F(Closing, StreamsAreBoundedInNumberAndOneKindLeavesTheOthersAlone) {
  constexpr std::uint32_t bound = 12'288;
  if (files_ < bound + 200) GTEST_SKIP() << "a process may have " << files_ << " descriptors here";
  listen(host_port::agent);
  [[maybe_unused]] const long before = status_kib(device_->pid(), "VmRSS:");
  std::vector<UniqueFd> hosts;
  std::uint32_t refused_at = 0;
  for (std::uint32_t i = 0; i < bound + 100 && refused_at == 0; ++i) {
    auto pair = guest_dials(20000 + i, 2048);
    if (pair) {
      hosts.push_back(std::move(pair->host));
    } else {
      refused_at = i;
    }
  }
  EXPECT_EQ(refused_at, bound);
#ifndef ANCHORHOLD_SANITIZED
  EXPECT_LT((status_kib(device_->pid(), "VmRSS:") - before) * 1024 / bound, 1024)
      << "bytes of an idle stream";
#endif
  EXPECT_FALSE(guest_dials(60000, 2048));
  auto told = violated_.take();
  ASSERT_TRUE(told);
  EXPECT_THAT(*told, ::testing::HasSubstr("more streams at a time"));
  EXPECT_TRUE(guest_dials(60001, host_port::agent));
  EXPECT_TRUE(host_dials(7000));
  // One closes, one more fits.
  GuestStream first{*driver_, 20000, 2048};
  first.say(3);
  EXPECT_TRUE(guest_dials(60002, 2048));
  // Of ports that carry calls there are few.
  std::vector<Pair> calls;
  while (calls.size() < 200) {
    auto pair = guest_dials(61000 + static_cast<std::uint32_t>(calls.size()), host_port::agent);
    if (!pair) break;
    calls.push_back(std::move(*pair));
  }
  EXPECT_EQ(calls.size(), 64u);
}

TEST_F(Closing, StreamsThatTheHostTakesLateAreNotLost) {
  // The device's thread of the host waits in the first one.
  std::promise<void> go_on;
  auto going = go_on.get_future().share();
  constexpr std::uint32_t count = 1500;  // more than the control socket holds
  ASSERT_TRUE(device_->listen(2049, [this, going](UniqueFd stream) {
    going.wait();
    accepted_.put(std::move(stream));
  }));
  std::vector<GuestStream> guests;
  for (std::uint32_t i = 0; i < count; ++i) {
    guests.push_back({*driver_, 20000 + i, 2049});
    guests.back().say(1);
    ASSERT_TRUE(guests.back().pump([&] { return guests.back().established || guests.back().reset; }));
    ASSERT_TRUE(guests.back().established) << i;
    guests.back().write(bytes_of(std::to_string(i)));
  }
  go_on.set_value();
  for (std::uint32_t i = 0; i < count; ++i) {
    auto host = accepted_.take();
    ASSERT_TRUE(host) << i;
    const std::string text = std::to_string(i);
    ASSERT_EQ(read_text(host->get(), text.size()), text);
  }
}

TEST_F(Closing, ManyStreamsThatNobodyReadsHoldTheirShareAndNoMore) {
  constexpr std::uint32_t count = 1500;  // more than there are large buffers
  std::vector<Pair> pairs;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto pair = guest_dials(20000 + i, 2048);
    ASSERT_TRUE(pair);
    pairs.push_back(std::move(*pair));
  }
  std::vector<std::byte> block(GuestDriver::payload_limit);
  std::size_t few = 0, most = 0;
  for (Pair& pair : pairs) {
    const std::size_t total = fill_up(pair.guest);
    ASSERT_GT(total, 0u);
    if (total < 128u << 10) ++few;
    most = std::max(most, total);
  }
  EXPECT_GE(most, 256u << 10);
  EXPECT_EQ(few, count - 1024);
  // A large buffer that is given up serves another.
  pairs.front().host.reset();
  ASSERT_TRUE(pairs.front().guest.pump([&] { return pairs.front().guest.reset; }));
  auto next = guest_dials(60000, 2048);
  ASSERT_TRUE(next);
  EXPECT_GE(fill_up(next->guest), 256u << 10);
}

}  // namespace
}  // namespace anchorhold::vsock::testing
