// The other side of a vhost-user device, for tests: shares a memfd as guest memory, makes the rings in it,
// and drives them as a guest's driver does. Everything is public and raw, so that a test can do what no
// driver would.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"

namespace anchorhold::vsock::testing {

using Milliseconds = std::chrono::milliseconds;
// Generous: only ever reached by a test that fails.
inline constexpr Milliseconds patience(30'000);

struct [[gnu::packed]] Packet {
  std::uint64_t source_cid = 3;
  std::uint64_t destination_cid = 2;
  std::uint32_t source_port = 0;
  std::uint32_t destination_port = 0;
  std::uint32_t length = 0;
  std::uint16_t type = 1;
  std::uint16_t operation = 0;
  std::uint32_t flags = 0;
  std::uint32_t buffer_size = 256 << 10;
  std::uint32_t forwarded = 0;
};

struct RingDescriptor {
  std::uint64_t address;
  std::uint32_t length;
  std::uint16_t flags;
  std::uint16_t next;
};
inline constexpr std::uint16_t flag_next = 1, flag_write = 2, flag_indirect = 4;

class FrontEnd {
 public:
  static constexpr std::uint64_t guest_base = 0x4000'0000;
  static constexpr std::uint64_t user_base = 0x7f12'0000'0000;
  static constexpr std::size_t memory_size = 16u << 20;
  static constexpr std::uint16_t entries = 128;

  // Connects to the socket; throws std::runtime_error when it cannot, like everything here.
  explicit FrontEnd(const std::string& socket_path);
  explicit FrontEnd(UniqueFd connection);
  ~FrontEnd();

  // vhost-user messages.
  void send(std::uint32_t request, std::span<const std::byte> payload, std::vector<int> descriptors = {},
            std::uint32_t flags = 1);
  void send_number(std::uint32_t request, std::uint64_t value, std::vector<int> descriptors = {},
                   std::uint32_t flags = 1);
  void send_state(std::uint32_t request, std::uint32_t index, std::uint32_t value, std::uint32_t flags = 1);
  std::vector<std::byte> receive(std::uint32_t request);
  std::uint64_t ask(std::uint32_t request);
  void send_memory_table();
  void send_ring(unsigned ring, std::uint16_t base = 0);
  // What QEMU does, in its order.
  void negotiate(bool event_index = true);
  // Stops a ring; returns its index.
  std::uint32_t stop_ring(unsigned ring);
  // True once the device has closed the connection.
  bool closed(Milliseconds limit = patience);

  // Guest memory and the rings in it.
  std::byte* memory() { return memory_; }
  template <typename T>
  T& at(std::size_t offset) {
    return *reinterpret_cast<T*>(memory_ + offset);
  }
  static std::size_t ring_offset(unsigned ring) { return ring * 0x4000u; }
  RingDescriptor& descriptor(unsigned ring, unsigned index) {
    return at<RingDescriptor>(ring_offset(ring) + index * sizeof(RingDescriptor));
  }
  volatile std::uint16_t& available(unsigned ring, unsigned word) {
    return at<volatile std::uint16_t>(ring_offset(ring) + 0x1000 + 2 * word);
  }
  volatile std::uint16_t& used_word(unsigned ring, unsigned word) {
    return at<volatile std::uint16_t>(ring_offset(ring) + 0x2000 + 2 * word);
  }
  std::uint16_t used_index(unsigned ring) {
    return __atomic_load_n(&at<std::uint16_t>(ring_offset(ring) + 0x2002), __ATOMIC_ACQUIRE);
  }
  // Makes the chain at `head` available, and kicks if the device asked for it.
  void offer(unsigned ring, std::uint16_t head);
  void kick(unsigned ring);
  // Waits for an interrupt, or until the used index differs from `seen`. False: time ran out or the
  // connection closed.
  bool wait_used(unsigned ring, std::uint16_t seen, Milliseconds limit = patience);

  int connection() const { return connection_.get(); }
  int memory_fd() const { return memory_fd_.get(); }
  int kick_fd(unsigned ring) const { return kick_[ring].get(); }
  std::uint64_t interrupts = 0;
  std::uint64_t kicks = 0;

 private:
  void make_memory();
  UniqueFd connection_;
  UniqueFd memory_fd_;
  std::byte* memory_ = nullptr;
  UniqueFd kick_[2], call_[2];
  std::uint16_t offered_[2] = {};
  bool event_index_ = true;
};

// A guest's vsock driver over a front end that has negotiated: packets in and out.
class GuestDriver {
 public:
  static constexpr unsigned rx = 0, tx = 1;
  static constexpr std::size_t buffer_size = 4096;  // as Linux 6.1: header and payload apart
  static constexpr std::size_t payload_limit = 64 << 10;

  explicit GuestDriver(FrontEnd& front_end);

  void send(const Packet& packet, std::span<const std::byte> payload = {});
  // The next packet from the device; nothing when the time is over.
  struct Received {
    Packet packet;
    std::vector<std::byte> payload;
  };
  std::optional<Received> receive(Milliseconds limit = patience);
  // Packets that the device has not taken yet.
  unsigned unsent();

  FrontEnd& front_end;

 private:
  void post(unsigned slot);
  static constexpr unsigned slots = FrontEnd::entries / 2;
  std::uint16_t rx_seen_ = 0;
  std::uint16_t tx_seen_ = 0;
  std::vector<unsigned> free_;
};

// One stream's end in the guest, with credit kept as the protocol asks; its packets are received by the
// test's pump.
struct GuestStream {
  GuestDriver& driver;
  std::uint32_t guest_port;
  std::uint32_t host_port;
  std::uint32_t sent = 0, peer_buffer = 0, peer_forwarded = 0;
  std::uint32_t received = 0;
  bool established = false, reset = false;
  std::uint32_t shutdown = 0;  // flags the device sent
  std::vector<std::byte> data = {};
  std::uint32_t told_forwarded = 0;
  bool told_credit = false;  // a CREDIT_UPDATE came
  bool stall = false;        // does not read: gives no credit back

  Packet packet(std::uint16_t operation, std::uint32_t flags = 0) const;
  void say(std::uint16_t operation, std::uint32_t flags = 0) { driver.send(packet(operation, flags)); }
  std::uint32_t credit() const { return peer_buffer - (sent - peer_forwarded); }
  // As much as credit allows; returns the count.
  std::size_t write(std::span<const std::byte> bytes);
  bool takes(const Packet& p) const { return p.destination_port == guest_port && p.source_port == host_port; }
  void handle(const GuestDriver::Received& received_packet);
  // Handles packets until the condition holds; packets of other streams are dropped. False: time ran out.
  template <typename Condition>
  bool pump(Condition until, Milliseconds limit = patience) {
    auto end = std::chrono::steady_clock::now() + limit;
    while (!until()) {
      auto left = std::chrono::duration_cast<Milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      auto next = driver.receive(left);
      if (!next) return until();
      if (takes(next->packet)) handle(*next);
    }
    return true;
  }
};

}  // namespace anchorhold::vsock::testing
