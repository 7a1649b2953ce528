#include "vsock/guest_memory.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace anchorhold::vsock {
namespace {

bool overflows(std::uint64_t start, std::uint64_t length) {
  return length > ~std::uint64_t{0} - start;
}

bool overlap(std::uint64_t a, std::uint64_t a_size, std::uint64_t b, std::uint64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

Status check(std::span<const MemoryRegion> regions, std::uint64_t max_bytes) {
  if (regions.empty() || regions.size() > max_memory_regions)
    return fail(ErrorCode::invalid_argument, fmt::format("a memory table of {} regions", regions.size()));
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const auto& region = regions[i];
    if (region.size == 0) return fail(ErrorCode::invalid_argument, "a memory region is empty");
    if (overflows(region.guest_address, region.size) || overflows(region.user_address, region.size) ||
        overflows(region.mmap_offset, region.size))
      return fail(ErrorCode::invalid_argument, "a memory region goes beyond the end of the address space");
    if (region.size > max_bytes - total)
      return fail(ErrorCode::resource_exhausted,
                  fmt::format("the memory table is larger than {} bytes", max_bytes));
    total += region.size;
    for (std::size_t j = 0; j < i; ++j) {
      const auto& other = regions[j];
      if (overlap(region.guest_address, region.size, other.guest_address, other.size) ||
          overlap(region.user_address, region.size, other.user_address, other.size))
        return fail(ErrorCode::invalid_argument, "two memory regions overlap");
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const GuestMemory>> GuestMemory::map(std::span<const MemoryRegion> regions,
                                                            std::span<const UniqueFd> descriptors,
                                                            std::uint64_t max_bytes) {
  ANCHORHOLD_CHECK(check(regions, max_bytes));
  if (descriptors.size() != regions.size())
    return fail(ErrorCode::invalid_argument, fmt::format("{} memory regions came with {} descriptors",
                                                         regions.size(), descriptors.size()));
  std::shared_ptr<GuestMemory> memory(new GuestMemory);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const auto& region = regions[i];
    struct stat info;
    if (fstat(descriptors[i].get(), &info) != 0) return fail_errno(errno, "a memory region's descriptor");
    if (!S_ISREG(info.st_mode))
      return fail(ErrorCode::invalid_argument, "a memory region's descriptor is not shared memory");
    if (info.st_size < 0 || region.mmap_offset + region.size > static_cast<std::uint64_t>(info.st_size))
      return fail(ErrorCode::invalid_argument, "a memory region is longer than its descriptor");
    // Huge pages map in whole pages only; st_blksize is their size.
    auto page = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(info.st_blksize), 4096, 1u << 30);
    std::uint64_t start = region.mmap_offset / page * page;
    std::uint64_t length = region.mmap_offset - start + region.size;
    if (overflows(length, page)) return fail(ErrorCode::invalid_argument, "a memory region is too long");
    length = (length + page - 1) / page * page;
    // The kernel chooses the place, so that nothing of ours can be covered.
    void* mapping = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                         descriptors[i].get(), static_cast<off_t>(start));
    if (mapping == MAP_FAILED) return fail_errno(errno, "mapping guest memory");
    (void)madvise(mapping, length, MADV_DONTDUMP);
    memory->regions_.push_back(
        {region, static_cast<std::byte*>(mapping) + (region.mmap_offset - start), mapping, length});
  }
  std::sort(memory->regions_.begin(), memory->regions_.end(),
            [](const Mapped& a, const Mapped& b) { return a.region.guest_address < b.region.guest_address; });
  return std::shared_ptr<const GuestMemory>(std::move(memory));
}

GuestMemory::~GuestMemory() {
  for (const auto& mapped : regions_) munmap(mapped.mapping, mapped.mapping_size);
}

bool GuestMemory::translate(std::uint64_t address, std::uint64_t length, std::vector<iovec>& segments) const {
  if (overflows(address, length)) return false;
  for (const auto& mapped : regions_) {
    if (length == 0) return true;
    const auto& region = mapped.region;
    // Regions are sorted: the first that reaches beyond the address holds it, or nothing does.
    if (address >= region.guest_address + region.size) continue;
    if (address < region.guest_address) return false;
    std::uint64_t offset = address - region.guest_address;
    std::uint64_t part = std::min(length, region.size - offset);
    segments.push_back({mapped.bytes + offset, static_cast<std::size_t>(part)});
    address += part;
    length -= part;
  }
  return length == 0;
}

std::byte* GuestMemory::at(std::uint64_t guest_address, std::uint64_t length) const {
  for (const auto& mapped : regions_) {
    const auto& region = mapped.region;
    if (guest_address < region.guest_address || guest_address - region.guest_address >= region.size) continue;
    std::uint64_t offset = guest_address - region.guest_address;
    return length <= region.size - offset ? mapped.bytes + offset : nullptr;
  }
  return nullptr;
}

std::byte* GuestMemory::at_user(std::uint64_t user_address, std::uint64_t length) const {
  for (const auto& mapped : regions_) {
    const auto& region = mapped.region;
    if (user_address < region.user_address || user_address - region.user_address >= region.size) continue;
    std::uint64_t offset = user_address - region.user_address;
    return length <= region.size - offset ? mapped.bytes + offset : nullptr;
  }
  return nullptr;
}

}  // namespace anchorhold::vsock
