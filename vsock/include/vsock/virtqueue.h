// The device's side of a virtio 1.2 split ring (section 2.7): takes descriptor chains, gives them back, tells
// the guest. Everything in the ring is hostile: each field is copied once and checked before use.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <sys/uio.h>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "vsock/guest_memory.h"

namespace anchorhold::vsock {

// A chain as it was popped: segments of guest memory, ready for readv(2) and writev(2). Reuse one object over
// many pops and no memory is allocated; move it to a worker thread and it stays valid, as it keeps the
// mapping alive.
struct DescriptorChain {
  std::uint16_t head = 0;
  std::vector<iovec> readable;  // what the guest gives: read only
  std::vector<iovec> writable;  // what the guest wants filled
  std::size_t readable_bytes = 0;
  std::size_t writable_bytes = 0;
  std::shared_ptr<const GuestMemory> memory;

  void clear();
};

// Copies out of / into a list of segments, starting `offset` bytes in; returns how many bytes there were.
std::size_t copy_from(std::span<const iovec> segments, std::size_t offset, std::span<std::byte> to);
std::size_t copy_to(std::span<const iovec> segments, std::size_t offset, std::span<const std::byte> from);
// The part [offset, offset + length) of the segments, appended to `out`.
void slice(std::span<const iovec> segments, std::size_t offset, std::size_t length, std::vector<iovec>& out);

// Bounds that hold for every chain; chains beyond them are errors.
inline constexpr std::size_t max_chain_descriptors = 1024;  // indirect ones included
inline constexpr std::size_t max_chain_bytes = 16u << 20;
inline constexpr std::uint32_t max_queue_size = 1024;  // entries of a ring

// One ring. Every function may be called from any thread (each takes the queue's lock briefly), so one thread
// pops while workers push. Errors are faults of the guest's driver: the device has to end, since the ring can
// no longer be trusted.
class VirtQueue {
 public:
  VirtQueue() = default;
  VirtQueue(const VirtQueue&) = delete;
  VirtQueue& operator=(const VirtQueue&) = delete;

  // Takes the next chain. False: there is none, or the queue is not running. Reading is not told to the
  // guest: while the device works through a queue the guest has no reason to kick again (EVENT_IDX); when pop
  // said false and rearm_kicks() says false too, wait for the kick.
  Result<bool> pop(DescriptorChain& chain);
  // Asks for a kick at the next chain. True: there is one already, pop again instead of waiting.
  bool rearm_kicks();
  // Takes back the last `count` pops, newest last. Only for chains that were not pushed, with no other thread
  // popping.
  void unpop(std::uint16_t count);
  // Gives a chain back, with the count of bytes written to its writable part. The guest sees it at once, but
  // is interrupted only by notify(), so that many can be pushed for one interrupt. On a queue that was
  // stopped meanwhile nothing is written.
  void push(const DescriptorChain& chain, std::uint32_t written);
  // Interrupts the guest, if it asked for that and something was pushed since the last time.
  void notify();

  bool running() const;
  // The ring index of the next chain. After a reset by the guest's driver it begins at 0; after a pause it
  // goes on.
  std::uint16_t position() const;

 private:
  friend class VhostUserBackEnd;
  struct Addresses {  // of the front end (SET_VRING_ADDR)
    std::uint64_t descriptors = 0, available = 0, used = 0;
  };
  Status set_size(std::uint32_t entries);
  Status set_base(std::uint32_t index);
  void set_addresses(const Addresses& addresses);
  void set_call(UniqueFd fd);
  void set_enabled(bool enabled);
  bool started() const;
  // Resolves the addresses against the memory; the ring runs from then on.
  Status start(std::shared_ptr<const GuestMemory> memory, std::uint64_t features);
  // Waits until nothing is in flight, then stops; returns the index of the next chain (GET_VRING_BASE).
  std::uint16_t stop();
  Status remap(std::shared_ptr<const GuestMemory> memory);
  Status resolve();

  struct Descriptor;
  Status walk(std::uint16_t head, DescriptorChain& chain) const;
  Status add(const Descriptor& descriptor, DescriptorChain& chain) const;
  std::uint16_t load_available_index() const;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  bool running_ = false;
  bool enabled_ = false;
  bool stopping_ = false;
  bool addresses_set_ = false;
  bool event_index_ = false;
  bool indirect_ = false;
  std::uint16_t size_ = 0;
  std::uint16_t next_available_ = 0;  // next entry of the available ring that we have not taken
  std::uint16_t next_used_ = 0;       // next entry of the used ring that we fill
  std::uint16_t signalled_used_ = 0;  // next_used_ at the last notify()
  bool signalled_valid_ = false;
  std::uint32_t in_flight_ = 0;
  Addresses addresses_;
  UniqueFd call_;
  std::shared_ptr<const GuestMemory> memory_;
  std::byte* descriptors_ = nullptr;  // size_ × 16 bytes
  std::byte* available_ = nullptr;    // 4 + 2 × size_ + 2
  std::byte* used_ = nullptr;         // 4 + 8 × size_ + 2
};

}  // namespace anchorhold::vsock
