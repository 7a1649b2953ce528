#include "front_end.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace anchorhold::vsock::testing {
namespace {

[[noreturn]] void give_up(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

struct Header {
  std::uint32_t request, flags, size;
};

UniqueFd connect_to(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    give_up("connecting to " + path);
  return fd;
}

}  // namespace

FrontEnd::FrontEnd(const std::string& socket_path) : FrontEnd(connect_to(socket_path)) {}

FrontEnd::FrontEnd(UniqueFd connection) : connection_(std::move(connection)) {
  make_memory();
}

FrontEnd::~FrontEnd() {
  munmap(memory_, memory_size);
}

void FrontEnd::make_memory() {
  memory_fd_.reset(memfd_create("guest", MFD_CLOEXEC));
  if (!memory_fd_ || ftruncate(memory_fd_.get(), memory_size) != 0) give_up("memfd");
  void* mapping = mmap(nullptr, memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_.get(), 0);
  if (mapping == MAP_FAILED) give_up("mmap");
  memory_ = static_cast<std::byte*>(mapping);
  for (unsigned ring : {0u, 1u}) {
    kick_[ring].reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    call_[ring].reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
}

void FrontEnd::send(std::uint32_t request, std::span<const std::byte> payload, std::vector<int> descriptors,
                    std::uint32_t flags) {
  Header header{request, flags, static_cast<std::uint32_t>(payload.size())};
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof header);
  (void)send_with_descriptors(connection_.get(), bytes,
                              descriptors);  // the device may be gone: the test looks at that
}

void FrontEnd::send_number(std::uint32_t request, std::uint64_t value, std::vector<int> descriptors,
                           std::uint32_t flags) {
  send(request, std::as_bytes(std::span(&value, 1)), std::move(descriptors), flags);
}

void FrontEnd::send_state(std::uint32_t request, std::uint32_t index, std::uint32_t value,
                          std::uint32_t flags) {
  const std::uint32_t state[2] = {index, value};
  send(request, std::as_bytes(std::span(state)), {}, flags);
}

std::vector<std::byte> FrontEnd::receive(std::uint32_t request) {
  pollfd entry{connection_.get(), POLLIN, 0};
  if (poll(&entry, 1, static_cast<int>(patience.count())) != 1)
    throw std::runtime_error("the device does not reply");
  Header header{};
  auto got = read_full(connection_.get(), std::as_writable_bytes(std::span(&header, 1)));
  if (!got || *got != sizeof header) throw std::runtime_error("the device closed the connection");
  if (header.request != request || header.flags != 5 || header.size > 4096)
    throw std::runtime_error("an unexpected reply");
  std::vector<std::byte> payload(header.size);
  got = read_full(connection_.get(), payload);
  if (!got || *got != payload.size()) throw std::runtime_error("a short reply");
  return payload;
}

std::uint64_t FrontEnd::ask(std::uint32_t request) {
  send(request, {});
  auto payload = receive(request);
  std::uint64_t value = 0;
  if (payload.size() != sizeof value) throw std::runtime_error("a reply that is no number");
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

void FrontEnd::send_memory_table() {
  // Two regions that touch, so that buffers may lie across them.
  struct {
    std::uint32_t count = 2, padding = 0;
    std::uint64_t regions[2][4] = {
        {guest_base, memory_size / 2, user_base, 0},
        {guest_base + memory_size / 2, memory_size / 2, user_base + memory_size, memory_size / 2}};
  } table;
  send(5, std::as_bytes(std::span(&table, 1)), {memory_fd_.get(), memory_fd_.get()}, 9);
  receive(5);
}

void FrontEnd::send_ring(unsigned ring, std::uint16_t base) {
  send_state(8, ring, entries);
  send_state(10, ring, base);
  struct {
    std::uint32_t index, flags = 0;
    std::uint64_t descriptors, used, available, log = 0;
  } address{ring, 0, user_base + ring_offset(ring), user_base + ring_offset(ring) + 0x2000,
            user_base + ring_offset(ring) + 0x1000};
  send(9, std::as_bytes(std::span(&address, 1)));
  send_number(12, ring, {kick_[ring].get()});
  send_number(13, ring, {call_[ring].get()});
  send_state(18, ring, 1);
}

void FrontEnd::negotiate(bool event_index) {
  event_index_ = event_index;
  std::uint64_t features = ask(1);
  if (!event_index) features &= ~(1ull << 29);
  std::uint64_t protocol = ask(15);
  send_number(16, protocol);
  if (ask(17) < 2) throw std::runtime_error("too few queues");
  send(3, {});
  send_number(2, features);
  send_memory_table();
  send_ring(0);
  send_ring(1);
}

std::uint32_t FrontEnd::stop_ring(unsigned ring) {
  send_state(18, ring, 0);
  send_state(11, ring, 0);
  auto payload = receive(11);
  std::uint32_t state[2] = {};
  std::memcpy(state, payload.data(), std::min(payload.size(), sizeof state));
  return state[1];
}

bool FrontEnd::closed(Milliseconds limit) {
  pollfd entry{connection_.get(), POLLRDHUP, 0};
  return poll(&entry, 1, static_cast<int>(limit.count())) == 1 &&
         (entry.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

void FrontEnd::kick(unsigned ring) {
  ++kicks;
  const std::uint64_t one = 1;
  (void)!::write(kick_[ring].get(), &one, sizeof one);
}

void FrontEnd::offer(unsigned ring, std::uint16_t head) {
  std::uint16_t index = offered_[ring]++;
  available(ring, 2 + index % entries) = head;
  __atomic_store_n(&at<std::uint16_t>(ring_offset(ring) + 0x1002), offered_[ring], __ATOMIC_RELEASE);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (event_index_) {
    std::uint16_t event = used_word(ring, 2 + 4 * entries);
    if (event != index) return;
  }
  kick(ring);
}

bool FrontEnd::wait_used(unsigned ring, std::uint16_t seen, Milliseconds limit) {
  auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (used_index(ring) != seen) return true;
    available(ring, 2 + entries) = seen;  // used_event: interrupt at the next one
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (used_index(ring) != seen) return true;
    auto left = std::chrono::duration_cast<Milliseconds>(end - std::chrono::steady_clock::now());
    pollfd entries_to_poll[2] = {{call_[ring].get(), POLLIN, 0}, {connection_.get(), POLLRDHUP, 0}};
    if (left.count() <= 0 || poll(entries_to_poll, 2, static_cast<int>(left.count())) <= 0)
      return used_index(ring) != seen;
    if (entries_to_poll[0].revents) {
      std::uint64_t count;
      (void)!::read(call_[ring].get(), &count, sizeof count);
      ++interrupts;
    } else if (entries_to_poll[1].revents) {
      return used_index(ring) != seen;
    }
  }
}

namespace {

constexpr std::size_t rx_area = 0x10000;
constexpr std::size_t tx_area = 0x100000;
constexpr std::size_t rx_stride = GuestDriver::buffer_size + 64;
constexpr std::size_t tx_stride = GuestDriver::payload_limit + 4096;

}  // namespace

GuestDriver::GuestDriver(FrontEnd& f) : front_end(f) {
  for (unsigned slot = 0; slot < slots; ++slot) {
    free_.push_back(slot);
    post(slot);
  }
}

void GuestDriver::post(unsigned slot) {
  std::uint64_t at = FrontEnd::guest_base + rx_area + slot * rx_stride;
  auto head = static_cast<std::uint16_t>(2 * slot);
  front_end.descriptor(rx, head) = {at, sizeof(Packet), flag_next | flag_write,
                                    static_cast<std::uint16_t>(head + 1)};
  front_end.descriptor(rx, head + 1u) = {at + 64, buffer_size, flag_write, 0};
  front_end.offer(rx, head);
}

unsigned GuestDriver::unsent() {
  while (tx_seen_ != front_end.used_index(tx)) {
    auto head =
        front_end.at<std::uint32_t>(FrontEnd::ring_offset(tx) + 0x2004 + 8 * (tx_seen_ % FrontEnd::entries));
    free_.push_back(head / 2);
    ++tx_seen_;
  }
  return slots - static_cast<unsigned>(free_.size());
}

void GuestDriver::send(const Packet& packet, std::span<const std::byte> payload) {
  if (unsent() == slots) {
    if (!front_end.wait_used(tx, tx_seen_)) throw std::runtime_error("the device takes no packets");
    unsent();
  }
  unsigned slot = free_.back();
  free_.pop_back();
  std::size_t at = tx_area + slot * tx_stride;
  auto head = static_cast<std::uint16_t>(2 * slot);
  std::memcpy(front_end.memory() + at, &packet, sizeof packet);
  std::copy(payload.begin(), payload.end(), front_end.memory() + at + 64);
  bool more = !payload.empty();
  front_end.descriptor(tx, head) = {FrontEnd::guest_base + at, sizeof(Packet),
                                    static_cast<std::uint16_t>(more ? flag_next : 0),
                                    static_cast<std::uint16_t>(head + 1)};
  front_end.descriptor(tx, head + 1u) = {FrontEnd::guest_base + at + 64,
                                         static_cast<std::uint32_t>(payload.size()), 0, 0};
  front_end.offer(tx, head);
}

std::optional<GuestDriver::Received> GuestDriver::receive(Milliseconds limit) {
  if (!front_end.wait_used(rx, rx_seen_, limit)) return std::nullopt;
  const auto* element =
      &front_end.at<std::uint32_t>(FrontEnd::ring_offset(rx) + 0x2004 + 8 * (rx_seen_ % FrontEnd::entries));
  unsigned slot = element[0] / 2;
  ++rx_seen_;
  Received received;
  std::size_t at = rx_area + slot * rx_stride;
  std::memcpy(&received.packet, front_end.memory() + at, sizeof(Packet));
  std::uint32_t length = element[1];
  if (length != sizeof(Packet) + received.packet.length || received.packet.length > buffer_size)
    throw std::runtime_error("a used length that is not the packet's");
  received.payload.assign(front_end.memory() + at + 64,
                          front_end.memory() + at + 64 + received.packet.length);
  post(slot);
  return received;
}

Packet GuestStream::packet(std::uint16_t operation, std::uint32_t flags) const {
  Packet p;
  p.source_port = guest_port;
  p.destination_port = host_port;
  p.operation = operation;
  p.flags = flags;
  p.forwarded = stall ? told_forwarded : received;
  return p;
}

std::size_t GuestStream::write(std::span<const std::byte> bytes) {
  std::size_t count = std::min<std::size_t>({bytes.size(), credit(), GuestDriver::payload_limit});
  if (count == 0) return 0;
  auto p = packet(5);
  p.length = static_cast<std::uint32_t>(count);
  driver.send(p, bytes.first(count));
  sent += p.length;
  told_forwarded = p.forwarded;
  return count;
}

void GuestStream::handle(const GuestDriver::Received& r) {
  peer_buffer = r.packet.buffer_size;
  peer_forwarded = r.packet.forwarded;
  switch (r.packet.operation) {
    case 1:  // the host dials
      established = true;
      say(2);
      break;
    case 2:
      established = true;
      break;
    case 3:
      reset = true;
      break;
    case 4:
      shutdown |= r.packet.flags;
      break;
    case 5:
      received += r.packet.length;
      data.insert(data.end(), r.payload.begin(), r.payload.end());
      if (!stall && received - told_forwarded > (64u << 10)) {
        told_forwarded = received;
        say(6);
      }
      break;
    case 6:
      told_credit = true;
      break;
    case 7:
      if (!stall) told_forwarded = received;
      say(6);
      break;
    default:
      break;
  }
}

}  // namespace anchorhold::vsock::testing
