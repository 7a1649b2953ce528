#include "vsock/virtqueue.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

#include "virtio.h"

namespace anchorhold::vsock {
namespace {

static_assert(std::endian::native == std::endian::little, "virtio 1 fields are little endian");

template <typename T>
T load(const std::byte* from) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(const_cast<std::byte*>(from)))
      .load(std::memory_order_acquire);
}
template <typename T>
void store(std::byte* to, T value) {
  std::atomic_ref<T>(*reinterpret_cast<T*>(to)).store(value, std::memory_order_release);
}

bool aligned(const std::byte* at, std::uintptr_t to) {
  return reinterpret_cast<std::uintptr_t>(at) % to == 0;
}

tl::unexpected<Error> malformed(std::string what) {
  return fail(ErrorCode::invalid_argument, "the guest's ring: " + what);
}

}  // namespace

struct VirtQueue::Descriptor {  // virtio 1.2, 2.7.5
  std::uint64_t address;
  std::uint32_t length;
  std::uint16_t flags;
  std::uint16_t next;
};

void DescriptorChain::clear() {
  readable.clear();
  writable.clear();
  readable_bytes = writable_bytes = 0;
}

std::size_t copy_from(std::span<const iovec> segments, std::size_t offset, std::span<std::byte> to) {
  std::size_t copied = 0;
  for (const auto& segment : segments) {
    if (copied == to.size()) break;
    if (offset >= segment.iov_len) {
      offset -= segment.iov_len;
      continue;
    }
    std::size_t part = std::min(segment.iov_len - offset, to.size() - copied);
    std::memcpy(to.data() + copied, static_cast<const std::byte*>(segment.iov_base) + offset, part);
    copied += part;
    offset = 0;
  }
  return copied;
}

std::size_t copy_to(std::span<const iovec> segments, std::size_t offset, std::span<const std::byte> from) {
  std::size_t copied = 0;
  for (const auto& segment : segments) {
    if (copied == from.size()) break;
    if (offset >= segment.iov_len) {
      offset -= segment.iov_len;
      continue;
    }
    std::size_t part = std::min(segment.iov_len - offset, from.size() - copied);
    std::memcpy(static_cast<std::byte*>(segment.iov_base) + offset, from.data() + copied, part);
    copied += part;
    offset = 0;
  }
  return copied;
}

void slice(std::span<const iovec> segments, std::size_t offset, std::size_t length, std::vector<iovec>& out) {
  for (const auto& segment : segments) {
    if (length == 0) return;
    if (offset >= segment.iov_len) {
      offset -= segment.iov_len;
      continue;
    }
    std::size_t part = std::min(segment.iov_len - offset, length);
    out.push_back({static_cast<std::byte*>(segment.iov_base) + offset, part});
    length -= part;
    offset = 0;
  }
}

Result<bool> VirtQueue::pop(DescriptorChain& chain) {
  std::lock_guard lock(mutex_);
  if (!running_ || !enabled_ || stopping_) return false;
  std::uint16_t available = load_available_index();
  if (available == next_available_) return false;
  if (static_cast<std::uint16_t>(available - next_available_) > size_)
    return malformed("the available index is more than a whole ring ahead");
  if (in_flight_ >= size_) return malformed("more chains are made available than the ring has entries");
  auto head = load<std::uint16_t>(available_ + 4 + 2 * (next_available_ & (size_ - 1)));
  ANCHORHOLD_CHECK(walk(head, chain));
  ++next_available_;
  ++in_flight_;
  return true;
}

std::uint16_t VirtQueue::load_available_index() const {
  return load<std::uint16_t>(available_ + 2);
}

Status VirtQueue::walk(std::uint16_t head, DescriptorChain& chain) const {
  chain.clear();
  chain.head = head;
  if (chain.memory != memory_) chain.memory = memory_;
  const std::byte* table = descriptors_;
  std::uint32_t entries = size_;
  std::uint32_t index = head;
  bool inside_indirect = false;
  std::size_t seen = 0;
  for (std::uint32_t left = entries;;) {
    if (index >= entries)
      return malformed(fmt::format("descriptor {} is beyond the table of {}", index, entries));
    // A chain visits each descriptor of its table at most once; more visits mean a loop.
    if (left-- == 0) return malformed("a descriptor chain loops");
    if (++seen > max_chain_descriptors) return malformed("a descriptor chain is too long");
    Descriptor descriptor;
    std::memcpy(&descriptor, table + std::size_t{index} * sizeof descriptor, sizeof descriptor);
    if (descriptor.flags & virtio::descriptor_indirect) {
      if (!indirect_) return malformed("an indirect descriptor was not agreed on");
      if (inside_indirect) return malformed("an indirect descriptor inside an indirect table");
      if (descriptor.flags & virtio::descriptor_next)
        return malformed("an indirect descriptor with a successor");
      if (descriptor.length == 0 || descriptor.length % sizeof descriptor != 0 ||
          descriptor.length / sizeof descriptor > max_chain_descriptors)
        return malformed(fmt::format("an indirect table of {} bytes", descriptor.length));
      table = memory_->at(descriptor.address, descriptor.length);
      if (!table) return malformed("an indirect table outside the guest's memory");
      entries = left = descriptor.length / sizeof descriptor;
      index = 0;
      inside_indirect = true;
      continue;
    }
    ANCHORHOLD_CHECK(add(descriptor, chain));
    if (!(descriptor.flags & virtio::descriptor_next)) return {};
    index = descriptor.next;
  }
}

Status VirtQueue::add(const Descriptor& descriptor, DescriptorChain& chain) const {
  if (descriptor.length == 0) return malformed("a descriptor of no length");
  if (descriptor.length > max_chain_bytes - chain.readable_bytes - chain.writable_bytes)
    return malformed("a descriptor chain holds too many bytes");
  bool writable = descriptor.flags & virtio::descriptor_write;
  if (!writable && !chain.writable.empty()) return malformed("a readable descriptor after a writable one");
  if (!memory_->translate(descriptor.address, descriptor.length, writable ? chain.writable : chain.readable))
    return malformed("a descriptor points outside the guest's memory");
  (writable ? chain.writable_bytes : chain.readable_bytes) += descriptor.length;
  return {};
}

bool VirtQueue::rearm_kicks() {
  std::lock_guard lock(mutex_);
  if (!running_ || !enabled_) return false;
  if (event_index_) {
    store<std::uint16_t>(used_ + 4 + 8 * std::size_t{size_}, next_available_);
    // The guest writes its index and then reads the event; we write the event and then read the index.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  return load_available_index() != next_available_;
}

void VirtQueue::unpop(std::uint16_t count) {
  std::lock_guard lock(mutex_);
  next_available_ = static_cast<std::uint16_t>(next_available_ - count);
  in_flight_ -= count;
  if (in_flight_ == 0) idle_.notify_all();
}

void VirtQueue::push(const DescriptorChain& chain, std::uint32_t written) {
  std::lock_guard lock(mutex_);
  if (running_) {
    std::byte* entry = used_ + 4 + 8 * std::size_t{static_cast<std::uint16_t>(next_used_ & (size_ - 1))};
    const std::uint32_t element[2] = {chain.head, written};
    std::memcpy(entry, element, sizeof element);
    ++next_used_;
    store<std::uint16_t>(used_ + 2, next_used_);
  }
  if (--in_flight_ == 0) idle_.notify_all();
}

void VirtQueue::notify() {
  std::lock_guard lock(mutex_);
  if (!running_ || (signalled_valid_ && next_used_ == signalled_used_)) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool wanted;
  if (event_index_) {
    auto event = load<std::uint16_t>(available_ + 4 + 2 * std::size_t{size_});
    // virtio 1.2, 2.7.7.2: the guest wants to hear when the index passes the event.
    wanted = !signalled_valid_ || static_cast<std::uint16_t>(next_used_ - event - 1) <
                                      static_cast<std::uint16_t>(next_used_ - signalled_used_);
  } else {
    wanted = !(load<std::uint16_t>(available_) & virtio::available_no_interrupt);
  }
  signalled_used_ = next_used_;
  signalled_valid_ = true;
  if (!wanted || !call_) return;
  const std::uint64_t one = 1;
  // Full means that the guest has not looked yet: it will.
  (void)!write(call_.get(), &one, sizeof one);
}

bool VirtQueue::running() const {
  std::lock_guard lock(mutex_);
  return running_ && enabled_;
}

std::uint16_t VirtQueue::position() const {
  std::lock_guard lock(mutex_);
  return next_available_;
}

bool VirtQueue::started() const {
  std::lock_guard lock(mutex_);
  return running_;
}

Status VirtQueue::set_size(std::uint32_t entries) {
  std::lock_guard lock(mutex_);
  if (running_) return fail(ErrorCode::invalid_argument, "the size of a running ring was changed");
  if (entries == 0 || entries > max_queue_size || !std::has_single_bit(entries))
    return fail(ErrorCode::invalid_argument, fmt::format("a ring of {} entries", entries));
  size_ = static_cast<std::uint16_t>(entries);
  return {};
}

Status VirtQueue::set_base(std::uint32_t index) {
  std::lock_guard lock(mutex_);
  if (running_) return fail(ErrorCode::invalid_argument, "the index of a running ring was changed");
  if (index > 0xffff) return fail(ErrorCode::invalid_argument, fmt::format("a ring index of {}", index));
  next_available_ = static_cast<std::uint16_t>(index);
  return {};
}

void VirtQueue::set_addresses(const Addresses& addresses) {
  std::lock_guard lock(mutex_);
  addresses_ = addresses;
  addresses_set_ = true;
}

void VirtQueue::set_call(UniqueFd fd) {
  std::lock_guard lock(mutex_);
  call_ = std::move(fd);
  // What was pushed while there was no descriptor to call is told now.
  signalled_valid_ = false;
}

void VirtQueue::set_enabled(bool enabled) {
  std::lock_guard lock(mutex_);
  enabled_ = enabled;
}

Status VirtQueue::resolve() {
  if (size_ == 0 || !addresses_set_)
    return fail(ErrorCode::invalid_argument, "a ring was started without size or addresses");
  const std::size_t entries = size_;
  descriptors_ = memory_->at_user(addresses_.descriptors, 16 * entries);
  available_ = memory_->at_user(addresses_.available, 6 + 2 * entries);
  used_ = memory_->at_user(addresses_.used, 6 + 8 * entries);
  if (!descriptors_ || !available_ || !used_)
    return fail(ErrorCode::invalid_argument, "a ring lies outside the shared memory");
  if (!aligned(descriptors_, 16) || !aligned(available_, 2) || !aligned(used_, 4))
    return fail(ErrorCode::invalid_argument, "a ring is not aligned");
  return {};
}

Status VirtQueue::start(std::shared_ptr<const GuestMemory> memory, std::uint64_t features) {
  std::lock_guard lock(mutex_);
  if (!memory) return fail(ErrorCode::invalid_argument, "a ring was started before the memory was shared");
  memory_ = std::move(memory);
  ANCHORHOLD_CHECK(resolve());
  event_index_ = features & virtio::feature_event_index;
  indirect_ = features & virtio::feature_indirect_descriptors;
  next_used_ = load<std::uint16_t>(used_ + 2);
  signalled_valid_ = false;
  running_ = true;
  return {};
}

Status VirtQueue::remap(std::shared_ptr<const GuestMemory> memory) {
  std::lock_guard lock(mutex_);
  if (!running_) return {};
  memory_ = std::move(memory);
  return resolve();
}

std::uint16_t VirtQueue::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  idle_.wait(lock, [this] { return in_flight_ == 0; });
  running_ = stopping_ = false;
  memory_.reset();
  descriptors_ = available_ = used_ = nullptr;
  return next_available_;
}

}  // namespace anchorhold::vsock
