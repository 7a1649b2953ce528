// What no front end and no driver would send. Each ends the device with a cause that names it, never by a
// crash.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include "fixture.h"

namespace anchorhold::vsock::testing {
namespace {

using ::testing::HasSubstr;
constexpr unsigned rx = GuestDriver::rx, tx = GuestDriver::tx;
constexpr std::uint64_t inside = FrontEnd::guest_base + 0x200000;

class MalformedRing : public WithDevice {
 protected:
  void SetUp() override {
    WithDevice::SetUp();
    if (HasFatalFailure()) return;
    front_end_ = std::make_unique<FrontEnd>((folder_->path() / "v").string());
    front_end_->negotiate();
  }
  RingDescriptor& descriptor(unsigned index) { return front_end_->descriptor(tx, index); }
  void expect_fault(const std::string& what) {
    auto error = ended_.take();
    ASSERT_TRUE(error) << "the device did not end";
    EXPECT_EQ(error->code, ErrorCode::invalid_argument);
    EXPECT_THAT(error->message, HasSubstr(what));
    EXPECT_TRUE(front_end_->closed());
  }
};

TEST_F(MalformedRing, ChainThatLoops) {
  descriptor(0) = {inside, 44, flag_next, 1};
  descriptor(1) = {inside, 16, flag_next, 0};
  front_end_->offer(tx, 0);
  expect_fault("loops");
}

TEST_F(MalformedRing, DescriptorThatPointsAtItself) {
  descriptor(5) = {inside, 44, flag_next, 5};
  front_end_->offer(tx, 5);
  expect_fault("loops");
}

TEST_F(MalformedRing, AddressOutsideTheMemory) {
  descriptor(0) = {0x1000, 44, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("outside the guest's memory");
}

TEST_F(MalformedRing, LengthBeyondTheEndOfTheMemory) {
  descriptor(0) = {FrontEnd::guest_base + FrontEnd::memory_size - 40, 44, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("outside the guest's memory");
}

TEST_F(MalformedRing, AddressThatOverflows) {
  descriptor(0) = {~0ull - 10, 44, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("outside the guest's memory");
}

TEST_F(MalformedRing, OversizedLength) {
  descriptor(0) = {inside, 0xffffffff, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("too many bytes");
}

TEST_F(MalformedRing, ManyDescriptorsThatAddUpToTooMuch) {
  for (unsigned i = 0; i < 4; ++i)
    descriptor(i) = {FrontEnd::guest_base, 8u << 20, static_cast<std::uint16_t>(i < 3 ? flag_next : 0),
                     static_cast<std::uint16_t>(i + 1)};
  front_end_->offer(tx, 0);
  expect_fault("too many bytes");
}

TEST_F(MalformedRing, ZeroLength) {
  descriptor(0) = {inside, 0, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("no length");
}

TEST_F(MalformedRing, HeadBeyondTheTable) {
  front_end_->offer(tx, FrontEnd::entries);
  expect_fault("beyond the table");
}

TEST_F(MalformedRing, NextBeyondTheTable) {
  descriptor(0) = {inside, 44, flag_next, 4000};
  front_end_->offer(tx, 0);
  expect_fault("beyond the table");
}

TEST_F(MalformedRing, IndirectInsideIndirect) {
  auto* table = &front_end_->at<RingDescriptor>(0x300000);
  table[0] = {FrontEnd::guest_base + 0x300000, 16, flag_indirect, 0};
  descriptor(0) = {FrontEnd::guest_base + 0x300000, 16, flag_indirect, 0};
  front_end_->offer(tx, 0);
  expect_fault("inside an indirect table");
}

TEST_F(MalformedRing, IndirectTableOfAnOddSize) {
  descriptor(0) = {FrontEnd::guest_base + 0x300000, 17, flag_indirect, 0};
  front_end_->offer(tx, 0);
  expect_fault("an indirect table of 17 bytes");
}

TEST_F(MalformedRing, IndirectTableThatIsHuge) {
  descriptor(0) = {FrontEnd::guest_base, 16 * 4096, flag_indirect, 0};
  front_end_->offer(tx, 0);
  expect_fault("an indirect table of 65536 bytes");
}

TEST_F(MalformedRing, IndirectTableOutsideTheMemory) {
  descriptor(0) = {0x10, 32, flag_indirect, 0};
  front_end_->offer(tx, 0);
  expect_fault("an indirect table outside");
}

TEST_F(MalformedRing, IndirectTableThatLoops) {
  auto* table = &front_end_->at<RingDescriptor>(0x300000);
  table[0] = {inside, 44, flag_next, 1};
  table[1] = {inside, 44, flag_next, 0};
  descriptor(0) = {FrontEnd::guest_base + 0x300000, 32, flag_indirect, 0};
  front_end_->offer(tx, 0);
  expect_fault("loops");
}

TEST_F(MalformedRing, IndirectWithASuccessor) {
  descriptor(0) = {FrontEnd::guest_base + 0x300000, 32, flag_indirect | flag_next, 1};
  front_end_->offer(tx, 0);
  expect_fault("with a successor");
}

TEST_F(MalformedRing, ReadableAfterWritable) {
  descriptor(0) = {inside, 44, flag_next | flag_write, 1};
  descriptor(1) = {inside, 44, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("readable descriptor after a writable one");
}

TEST_F(MalformedRing, IndexFarAhead) {
  front_end_->available(tx, 1) = 1000;
  front_end_->kick(tx);
  expect_fault("more than a whole ring ahead");
}

TEST_F(MalformedRing, PacketShorterThanItsHeader) {
  descriptor(0) = {inside, 43, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("a packet of 43 bytes");
}

TEST_F(MalformedRing, PacketWithAWritablePart) {
  descriptor(0) = {inside, 44, flag_next, 1};
  descriptor(1) = {inside, 44, flag_write, 0};
  front_end_->offer(tx, 0);
  expect_fault("a packet of");
}

TEST_F(MalformedRing, PayloadLongerThanItsPacket) {
  Packet packet;
  packet.operation = 5;
  packet.length = 5;
  front_end_->at<Packet>(0x200000) = packet;
  descriptor(0) = {inside, 48, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("a payload of 5 bytes in a packet of 48");
}

TEST_F(MalformedRing, ReceiveBufferThatHoldsNothing) {
  front_end_->descriptor(rx, 0) = {inside, 44, flag_write, 0};
  front_end_->offer(rx, 0);
  Packet packet;
  packet.operation = 1;  // refused, so there is an answer for the buffer
  packet.destination_port = 99;
  front_end_->at<Packet>(0x200000 + 64) = packet;
  descriptor(0) = {inside + 64, 44, 0, 0};
  front_end_->offer(tx, 0);
  expect_fault("a receive buffer of 44 bytes");
}

TEST_F(MalformedRing, MemoryThatIsTakenAway) {
  driver_ = std::make_unique<GuestDriver>(*front_end_);
  listen(2048);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  // The packet's header stays, its payload's pages are gone: the kernel's copy fails, and not our process.
  Packet packet = pair->guest.packet(5);
  packet.length = 4096;
  front_end_->at<Packet>(0x200000) = packet;
  descriptor(0) = {inside, 44, flag_next, 1};
  descriptor(1) = {FrontEnd::guest_base + FrontEnd::memory_size - 4096, 4096, 0, 0};
  ASSERT_EQ(ftruncate(front_end_->memory_fd(), FrontEnd::memory_size - 4096), 0);
  front_end_->offer(tx, 0);
  expect_fault("its memory is gone");
}

TEST_F(MalformedRing, ChainAcrossTwoRegionsIsFine) {
  driver_ = std::make_unique<GuestDriver>(*front_end_);
  listen(2048);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  std::size_t at = FrontEnd::memory_size / 2 - 50;
  Packet packet = pair->guest.packet(5);
  packet.length = 12;
  front_end_->at<Packet>(at) = packet;
  std::memcpy(front_end_->memory() + at + 44, "across, both", 12);
  descriptor(100) = {FrontEnd::guest_base + at, 56, 0, 0};
  front_end_->offer(tx, 100);
  EXPECT_EQ(read_text(pair->host.get(), 12), "across, both");
}

class MalformedMessage : public WithDevice {
 protected:
  void SetUp() override {
    WithDevice::SetUp();
    if (HasFatalFailure()) return;
    front_end_ = std::make_unique<FrontEnd>((folder_->path() / "v").string());
  }
  void expect_fault(const std::string& what) {
    auto error = ended_.take();
    ASSERT_TRUE(error) << "the device did not end";
    EXPECT_THAT(error->message, HasSubstr(what));
    EXPECT_TRUE(front_end_->closed());
  }
  struct Region {
    std::uint64_t guest, size, user, offset;
  };
  void send_table(std::vector<Region> regions, std::size_t descriptors,
                  std::optional<std::uint32_t> count = std::nullopt) {
    std::vector<std::byte> payload(8 + regions.size() * sizeof(Region));
    std::uint32_t n = count.value_or(static_cast<std::uint32_t>(regions.size()));
    std::memcpy(payload.data(), &n, sizeof n);
    if (!regions.empty()) std::memcpy(payload.data() + 8, regions.data(), regions.size() * sizeof(Region));
    front_end_->send(5, payload, std::vector<int>(descriptors, front_end_->memory_fd()));
  }
};

TEST_F(MalformedMessage, Version) {
  front_end_->send(1, {}, {}, 2);
  expect_fault("flags");
}
TEST_F(MalformedMessage, ReplyNobodyAskedFor) {
  front_end_->send(1, {}, {}, 5);
  expect_fault("flags");
}
TEST_F(MalformedMessage, HugePayload) {
  const std::uint32_t header[3] = {1, 1, 0xfffffff0};
  ASSERT_TRUE(write_all(front_end_->connection(), std::as_bytes(std::span(header))));
  expect_fault("a payload of 4294967280 bytes");
}
TEST_F(MalformedMessage, EndsInTheMiddle) {
  const std::uint32_t header[3] = {2, 1, 8};
  ASSERT_TRUE(write_all(front_end_->connection(), std::as_bytes(std::span(header))));
  ::shutdown(front_end_->connection(), SHUT_WR);
  expect_fault("ends in the middle");
}
TEST_F(MalformedMessage, UnknownRequest) {
  front_end_->send(1234, {});
  expect_fault("request 1234 was not offered");
}
TEST_F(MalformedMessage, PayloadOfTheWrongSize) {
  front_end_->send(2, std::vector<std::byte>(7));
  expect_fault("SET_FEATURES with 7 bytes");
}
TEST_F(MalformedMessage, FeaturesNobodyOffered) {
  front_end_->send_number(2, 1ull << 26);
  expect_fault("were not offered");
}
TEST_F(MalformedMessage, ProtocolFeaturesNobodyOffered) {
  front_end_->send_number(16, 1ull << 5);
  expect_fault("were not offered");
}
TEST_F(MalformedMessage, DescriptorsWhereNoneBelong) {
  front_end_->send(1, {}, {front_end_->memory_fd()});
  expect_fault("GET_FEATURES with descriptors");
}
TEST_F(MalformedMessage, TooManyDescriptors) {
  front_end_->send(1, {}, std::vector<int>(12, front_end_->memory_fd()));
  expect_fault("too many descriptors");
}
TEST_F(MalformedMessage, MemoryTableWithoutDescriptors) {
  send_table({{0, 4096, 0, 0}}, 0);
  expect_fault("1 memory regions came with 0 descriptors");
}
TEST_F(MalformedMessage, MemoryTableWhoseCountLies) {
  send_table({{0, 4096, 0, 0}}, 1, 200);
  expect_fault("SET_MEM_TABLE of 200 regions");
}
TEST_F(MalformedMessage, MemoryTableThatIsEmpty) {
  send_table({}, 0);
  expect_fault("SET_MEM_TABLE of 0 regions");
}
TEST_F(MalformedMessage, MemoryRegionsThatOverlap) {
  send_table({{0, 8192, 0x10000, 0}, {4096, 4096, 0x20000, 0}}, 2);
  expect_fault("overlap");
}
TEST_F(MalformedMessage, MemoryRegionsWhoseUserAddressesOverlap) {
  send_table({{0, 8192, 0x10000, 0}, {0x100000, 4096, 0x11000, 0}}, 2);
  expect_fault("overlap");
}
TEST_F(MalformedMessage, MemoryRegionOfNoSize) {
  send_table({{0, 0, 0, 0}}, 1);
  expect_fault("is empty");
}
TEST_F(MalformedMessage, MemoryRegionThatOverflows) {
  send_table({{~0ull - 4096, 8192, 0, 0}}, 1);
  expect_fault("beyond the end of the address space");
}
TEST_F(MalformedMessage, MemoryRegionLongerThanItsDescriptor) {
  send_table({{0, FrontEnd::memory_size + 4096, 0, 0}}, 1);
  expect_fault("longer than its descriptor");
}
TEST_F(MalformedMessage, MemoryRegionThatIsEnormous) {
  send_table({{0, 1ull << 60, 0, 0}}, 1);
  expect_fault("larger than");
}
TEST_F(MalformedMessage, MemoryRegionOfASocket) {
  Region region{0, 4096, 0, 0};
  std::vector<std::byte> payload(8 + sizeof region);
  payload[0] = std::byte{1};
  std::memcpy(payload.data() + 8, &region, sizeof region);
  front_end_->send(5, payload, {front_end_->connection()});
  expect_fault("not shared memory");
}
TEST_F(MalformedMessage, RingThatDoesNotExist) {
  front_end_->send_state(8, 2, 128);
  expect_fault("ring 2 of 2");
}
TEST_F(MalformedMessage, RingSizeThatIsNoPowerOfTwo) {
  front_end_->send_state(8, 0, 100);
  expect_fault("a ring of 100 entries");
}
TEST_F(MalformedMessage, RingSizeThatIsTooLarge) {
  front_end_->send_state(8, 0, 65536);
  expect_fault("a ring of 65536 entries");
}
TEST_F(MalformedMessage, RingIndexThatIsTooLarge) {
  front_end_->send_state(10, 0, 70000);
  expect_fault("a ring index of 70000");
}
TEST_F(MalformedMessage, KickBeforeMemory) {
  front_end_->send_state(8, 0, 128);
  front_end_->send_number(12, 0, {front_end_->kick_fd(0)});
  expect_fault("before the memory was shared");
}
TEST_F(MalformedMessage, KickBeforeAddresses) {
  send_table({{0, 4096, 0, 0}}, 1);
  front_end_->send_number(12, 0, {front_end_->kick_fd(0)});
  expect_fault("without size or addresses");
}
TEST_F(MalformedMessage, KickWithoutADescriptor) {
  front_end_->send_number(12, 0);
  expect_fault("SET_VRING_KICK with 0 descriptors");
}
TEST_F(MalformedMessage, KickByPolling) {
  front_end_->send_number(12, 0x100);
  expect_fault("polling");
}
TEST_F(MalformedMessage, RingOutsideTheMemory) {
  send_table({{0, 4096, 0x10000, 0}}, 1);
  front_end_->send_state(8, 0, 128);
  const std::uint64_t address[5] = {0, 0x10000, 0x10000, 0x10f80, 0};  // the available ring begins too late
  front_end_->send(9, std::as_bytes(std::span(address)));
  front_end_->send_number(12, 0, {front_end_->kick_fd(0)});
  expect_fault("outside the shared memory");
}
TEST_F(MalformedMessage, RingThatIsNotAligned) {
  send_table({{0, 1 << 20, 0x10000, 0}}, 1);
  front_end_->send_state(8, 0, 128);
  const std::uint64_t address[5] = {0, 0x10004, 0x20000, 0x30000, 0};
  front_end_->send(9, std::as_bytes(std::span(address)));
  front_end_->send_number(12, 0, {front_end_->kick_fd(0)});
  expect_fault("not aligned");
}
TEST_F(MalformedMessage, DirtyLog) {
  const std::uint64_t address[5] = {1ull << 32, 0, 0, 0, 0};
  front_end_->send(9, std::as_bytes(std::span(address)));
  expect_fault("logging");
}
TEST_F(MalformedMessage, ConfigurationBeyondItsEnd) {
  const std::uint32_t asked[5] = {4, 8, 0, 0, 0};
  front_end_->send(24, std::as_bytes(std::span(asked)));
  expect_fault("GET_CONFIG of 8 bytes at 4");
}

}  // namespace
}  // namespace anchorhold::vsock::testing
