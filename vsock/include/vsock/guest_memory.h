// The guest's memory as the front end shares it (vhost-user SET_MEM_TABLE): descriptors mapped into this
// process, and the translation of the addresses that guest and front end use. What lies there changes at any
// moment under our hands: copy once, then check, then use the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/uio.h>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::vsock {

// One region as the message describes it (QEMU docs/interop/vhost-user.rst, "Memory region description").
struct MemoryRegion {
  std::uint64_t guest_address;  // what descriptors of the guest hold
  std::uint64_t size;
  std::uint64_t user_address;  // the front end's own address: what SET_VRING_ADDR holds
  std::uint64_t mmap_offset;   // where the region begins in the descriptor
};

inline constexpr std::size_t max_memory_regions = 8;

// Immutable once made, and safe to read from any thread; whoever uses an address of it holds the shared
// pointer.
class GuestMemory {
 public:
  // Refuses: more regions than max_memory_regions, empty or overlapping regions, sums that overflow, more
  // than max_bytes in all, descriptors that are not regular (memfd) files or are shorter than the region.
  static Result<std::shared_ptr<const GuestMemory>> map(std::span<const MemoryRegion> regions,
                                                        std::span<const UniqueFd> descriptors,
                                                        std::uint64_t max_bytes);
  ~GuestMemory();
  GuestMemory(const GuestMemory&) = delete;
  GuestMemory& operator=(const GuestMemory&) = delete;

  // The bytes [address, address + length) of guest addresses, appended to `segments` (several when they cross
  // into a neighbouring region). False, and nothing usable appended, when any byte lies outside.
  bool translate(std::uint64_t address, std::uint64_t length, std::vector<iovec>& segments) const;
  // A range inside one region by the guest's, or by the front end's addresses; nullptr when it is not.
  std::byte* at(std::uint64_t guest_address, std::uint64_t length) const;
  std::byte* at_user(std::uint64_t user_address, std::uint64_t length) const;

 private:
  struct Mapped {
    MemoryRegion region;
    std::byte* bytes;  // of the region
    void* mapping;     // what to unmap
    std::size_t mapping_size;
  };
  GuestMemory() = default;
  std::vector<Mapped> regions_;  // sorted by guest address
};

}  // namespace anchorhold::vsock
