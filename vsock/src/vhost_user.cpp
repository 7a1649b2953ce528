#include "vsock/vhost_user.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "vhost_user_protocol.h"
#include "virtio.h"

namespace anchorhold::vsock {
namespace {

using namespace vhost_user;

tl::unexpected<Error> malformed(std::string what) {
  return fail(ErrorCode::invalid_argument, "the front end's message: " + what);
}

}  // namespace

struct VhostUserBackEnd::Message {
  Header header;
  std::span<const std::byte> payload;
  std::vector<UniqueFd>& descriptors;

  // The payload as exactly one T.
  template <typename T>
  Result<T> as() const {
    if (payload.size() != sizeof(T))
      return malformed(fmt::format("{} with {} bytes of payload", name(header.request), payload.size()));
    T value;
    std::memcpy(&value, payload.data(), sizeof value);
    return value;
  }
};

Result<std::unique_ptr<VhostUserBackEnd>> VhostUserBackEnd::create(EventLoop& loop, UniqueFd connection,
                                                                   VhostUserDevice& device,
                                                                   VhostUserLimits limits) {
  ANCHORHOLD_CHECK(set_nonblocking(connection.get()));
  std::unique_ptr<VhostUserBackEnd> back_end(
      new VhostUserBackEnd(loop, std::move(connection), device, limits));
  back_end->connection_watch_ =
      ANCHORHOLD_TRY(loop.watch(back_end->connection_.get(), ready::readable,
                                [self = back_end.get()](std::uint32_t) { self->connection_ready(); }));
  return back_end;
}

VhostUserBackEnd::VhostUserBackEnd(EventLoop& loop, UniqueFd connection, VhostUserDevice& device,
                                   VhostUserLimits limits)
    : loop_(loop), connection_(std::move(connection)), device_(device), limits_(limits) {
  for (std::size_t i = 0; i < device.queue_count(); ++i) rings_.push_back(std::make_unique<Ring>());
}

VhostUserBackEnd::~VhostUserBackEnd() = default;

void VhostUserBackEnd::fault(Error cause) {
  end(fail(std::move(cause)));
}

void VhostUserBackEnd::end(Status cause) {
  if (ended_) return;
  ended_ = true;
  connection_watch_ = {};
  for (auto& ring : rings_) ring->watch = {};
  // Closed, not only unwatched: the front end learns that its device is gone.
  connection_.reset();
  device_.ended(std::move(cause));
}

void VhostUserBackEnd::connection_ready() {
  auto whole = receive();
  if (!whole) return end(fail(std::move(whole).error()));
  if (!*whole) return;
  Header header;
  std::memcpy(&header, incoming_.data(), sizeof header);
  Message message{header, std::span<const std::byte>(incoming_).subspan(sizeof header),
                  incoming_descriptors_};
  Status status = dispatch(message);
  incoming_.clear();
  incoming_descriptors_.clear();
  if (!status) end(std::move(status));
}

Result<bool> VhostUserBackEnd::receive() {
  // One read for each time the descriptor is ready, header and payload apart, so that it never blocks.
  Header header{};
  std::size_t have = incoming_.size();
  std::size_t want = sizeof header;
  if (have >= sizeof header) {
    std::memcpy(&header, incoming_.data(), sizeof header);
    want += header.size;
  }
  incoming_.resize(want);
  auto received = receive_with_descriptors(connection_.get(), std::span(incoming_).subspan(have));
  if (!received && received.error().code == ErrorCode::unavailable) {
    end({});  // reset: it went without reading our last answer, as a virtual machine that is ended hard does
    return false;
  }
  if (!received) return fail(with_context(std::move(received).error(), "the front end's connection"));
  incoming_.resize(have + received->size);
  for (auto& fd : received->descriptors) incoming_descriptors_.push_back(std::move(fd));
  if (incoming_descriptors_.size() > max_memory_regions) return malformed("too many descriptors");
  if (received->size == 0) {
    if (have > 0) return malformed("it ends in the middle");
    end({});
    return false;
  }
  if (incoming_.size() < sizeof header) return false;
  std::memcpy(&header, incoming_.data(), sizeof header);
  if ((header.flags & flag_version_mask) != version || (header.flags & flag_reply))
    return malformed(fmt::format("flags {:#x}", header.flags));
  if (header.size > max_payload) return malformed(fmt::format("a payload of {} bytes", header.size));
  return incoming_.size() == sizeof header + header.size;
}

Status VhostUserBackEnd::dispatch(Message& message) {
  const auto request = message.header.request;
  bool takes_descriptors = request == set_mem_table || request == set_vring_kick ||
                           request == set_vring_call || request == set_vring_err;
  if (!takes_descriptors && !message.descriptors.empty())
    return malformed(fmt::format("{} with descriptors", name(request)));
  bool replied = false;
  switch (request) {
    case get_features:
      return reply_number(message, offered_features());
    case vhost_user::get_protocol_features:
      return reply_number(message, offered_protocol_features());
    case get_queue_num:
      return reply_number(message, rings_.size());
    case vhost_user::get_config:
      return get_config(message);
    case get_vring_base:
      replied = true;
      ANCHORHOLD_CHECK(dispatch_ring(message));
      break;
    case set_owner:
      if (!message.payload.empty()) return malformed("SET_OWNER with a payload");
      break;
    case vhost_user::set_features:
      ANCHORHOLD_CHECK(set_features(ANCHORHOLD_TRY(message.as<std::uint64_t>())));
      break;
    case vhost_user::set_protocol_features:
      ANCHORHOLD_CHECK(set_protocol_features(ANCHORHOLD_TRY(message.as<std::uint64_t>())));
      break;
    case set_mem_table:
      ANCHORHOLD_CHECK(set_memory_table(message));
      break;
    case set_vring_num:
    case set_vring_addr:
    case set_vring_base:
    case set_vring_enable:
      ANCHORHOLD_CHECK(dispatch_ring(message));
      break;
    case set_vring_kick:
    case set_vring_call:
    case set_vring_err:
      ANCHORHOLD_CHECK(set_ring_descriptor(message));
      break;
    default:
      return malformed(fmt::format("request {} was not offered", static_cast<std::uint32_t>(request)));
  }
  if (!replied && (message.header.flags & flag_need_reply) && (protocol_features_ & protocol_reply_ack))
    return reply_number(message, 0);
  return {};
}

Status VhostUserBackEnd::dispatch_ring(Message& message) {
  if (message.header.request == set_vring_addr) {
    auto address = ANCHORHOLD_TRY(message.as<RingAddress>());
    auto index = ANCHORHOLD_TRY(ring_index(address.index));
    if (address.flags != 0) return malformed("SET_VRING_ADDR asks for logging, which was not offered");
    auto& queue = rings_[index]->queue;
    queue.set_addresses({address.descriptors, address.available, address.used});
    return queue.remap(memory_);
  }
  auto state = ANCHORHOLD_TRY(message.as<RingState>());
  auto index = ANCHORHOLD_TRY(ring_index(state.index));
  auto& ring = *rings_[index];
  switch (message.header.request) {
    case set_vring_num:
      return ring.queue.set_size(state.value);
    case set_vring_base:
      return ring.queue.set_base(state.value);
    case set_vring_enable:
      if (state.value > 1) return malformed("SET_VRING_ENABLE is neither on nor off");
      if (state.value == 0 && ring.started) {
        ring.started = false;
        device_.stopping(index);
      }
      ring.queue.set_enabled(state.value == 1);
      update(index);
      return {};
    default: {  // get_vring_base
      if (std::exchange(ring.started, false)) device_.stopping(index);
      ring.watch = {};
      ring.kick.reset();
      state.value = ring.queue.stop();
      ring.queue.set_call({});
      return reply(message, std::as_bytes(std::span(&state, 1)));
    }
  }
}

Result<std::size_t> VhostUserBackEnd::ring_index(std::uint64_t index) const {
  if (index >= rings_.size()) return malformed(fmt::format("ring {} of {}", index, rings_.size()));
  return static_cast<std::size_t>(index);
}

std::uint64_t VhostUserBackEnd::offered_features() const {
  return device_.features() | virtio::feature_version_1 | virtio::feature_indirect_descriptors |
         virtio::feature_event_index | feature_protocol_features;
}

std::uint64_t VhostUserBackEnd::offered_protocol_features() const {
  return protocol_multiqueue | protocol_reply_ack | (device_.config().empty() ? 0 : protocol_config);
}

Status VhostUserBackEnd::set_features(std::uint64_t value) {
  if (value & ~offered_features())
    return malformed(fmt::format("features {:#x} were not offered", value & ~offered_features()));
  features_ = value;
  // Without the protocol features there is no SET_VRING_ENABLE: rings run as soon as they can.
  if (!(value & feature_protocol_features))
    for (auto& ring : rings_) ring->queue.set_enabled(true);
  return {};
}

Status VhostUserBackEnd::set_protocol_features(std::uint64_t value) {
  if (value & ~offered_protocol_features())
    return malformed(
        fmt::format("protocol features {:#x} were not offered", value & ~offered_protocol_features()));
  protocol_features_ = value;
  return {};
}

Status VhostUserBackEnd::set_memory_table(Message& message) {
  MemoryTableHeader table;
  if (message.payload.size() < sizeof table) return malformed("SET_MEM_TABLE is too short");
  std::memcpy(&table, message.payload.data(), sizeof table);
  auto rest = message.payload.subspan(sizeof table);
  if (table.count == 0 || table.count > max_memory_regions ||
      rest.size() != table.count * sizeof(MemoryRegion))
    return malformed(
        fmt::format("SET_MEM_TABLE of {} regions in {} bytes", table.count, message.payload.size()));
  std::vector<MemoryRegion> regions(table.count);
  std::memcpy(regions.data(), rest.data(), rest.size());
  auto memory = GuestMemory::map(regions, message.descriptors, limits_.max_memory_bytes);
  if (!memory) return fail(with_context(std::move(memory).error(), "the front end's memory table"));
  memory_ = std::move(*memory);
  for (auto& ring : rings_) ANCHORHOLD_CHECK(ring->queue.remap(memory_));
  return {};
}

Status VhostUserBackEnd::set_ring_descriptor(Message& message) {
  auto value = ANCHORHOLD_TRY(message.as<std::uint64_t>());
  auto index = ANCHORHOLD_TRY(ring_index(value & ring_index_mask));
  bool none = value & ring_no_descriptor;
  if ((value & ~(ring_index_mask | ring_no_descriptor)) != 0 ||
      message.descriptors.size() != (none ? 0u : 1u))
    return malformed(
        fmt::format("{} with {} descriptors", name(message.header.request), message.descriptors.size()));
  UniqueFd fd;
  if (!none) {
    fd = std::move(message.descriptors[0]);
    ANCHORHOLD_CHECK(set_nonblocking(fd.get()));
  }
  switch (message.header.request) {
    case set_vring_kick:
      return set_kick(index, std::move(fd));
    case set_vring_call:
      rings_[index]->queue.set_call(std::move(fd));
      return {};
    default:
      return {};  // SET_VRING_ERR: faults end the connection, so there is nobody to tell
  }
}

Status VhostUserBackEnd::set_kick(std::size_t index, UniqueFd fd) {
  if (!fd) return malformed("SET_VRING_KICK asks for polling, which is not done here");
  auto& ring = *rings_[index];
  ring.watch = {};
  ring.kick = std::move(fd);
  if (!ring.queue.started()) {
    if (auto status = ring.queue.start(memory_, features_); !status)
      return fail(with_context(std::move(status).error(), fmt::format("ring {}", index)));
  }
  ring.watch = ANCHORHOLD_TRY(loop_.watch(ring.kick.get(), ready::readable, [this, index](std::uint32_t) {
    std::uint64_t count;
    if (read(rings_[index]->kick.get(), &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
      return end(fail_errno(errno, fmt::format("the kick descriptor of ring {}", index)));
    if (rings_[index]->started) device_.kicked(index);
  }));
  update(index);
  return {};
}

void VhostUserBackEnd::update(std::size_t index) {
  auto& ring = *rings_[index];
  if (ring.started || !ring.queue.running()) return;
  ring.started = true;
  device_.started(index);
}

Status VhostUserBackEnd::get_config(const Message& message) {
  auto config = device_.config();
  ConfigHeader asked;
  if (message.payload.size() < sizeof asked) return malformed("GET_CONFIG is too short");
  std::memcpy(&asked, message.payload.data(), sizeof asked);
  if (config.empty() || asked.size != message.payload.size() - sizeof asked || asked.offset > config.size() ||
      asked.size > config.size() - asked.offset)
    return malformed(
        fmt::format("GET_CONFIG of {} bytes at {} (there are {})", asked.size, asked.offset, config.size()));
  std::vector<std::byte> answer(sizeof asked + asked.size);
  std::memcpy(answer.data(), &asked, sizeof asked);
  std::memcpy(answer.data() + sizeof asked, config.data() + asked.offset, asked.size);
  return reply(message, answer);
}

Status VhostUserBackEnd::reply_number(const Message& message, std::uint64_t value) {
  return reply(message, std::as_bytes(std::span(&value, 1)));
}

Status VhostUserBackEnd::reply(const Message& message, std::span<const std::byte> payload) {
  Header header{message.header.request, version | flag_reply, static_cast<std::uint32_t>(payload.size())};
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  // Replies are few and small; a front end that lets its socket fill with them does not follow the protocol.
  ssize_t sent = send(connection_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
    end({});
    return {};
  }
  if (sent != static_cast<ssize_t>(bytes.size()))
    return fail_errno(sent < 0 ? errno : EMSGSIZE, "replying to the front end");
  return {};
}

}  // namespace anchorhold::vsock
