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
using namespace vhost_user;

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
    : loop_(loop),
      connection_(std::move(connection)),
      device_(device),
      limits_(limits),
      incoming_(std::make_unique<MessageReader>()) {
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
  auto got = incoming_->receive(connection_.get());
  if (!got) return end(fail(std::move(got).error()));
  if (*got == MessageReader::Got::end) return end({});
  if (*got == MessageReader::Got::part) return;
  Status status = dispatch(*incoming_);
  incoming_->clear();
  if (!status) end(std::move(status));
}

Status VhostUserBackEnd::dispatch(MessageReader& message) {
  const auto request = message.header().request;
  bool takes_descriptors = request == set_mem_table || request == set_vring_kick ||
                           request == set_vring_call || request == set_vring_err;
  if (!takes_descriptors && !message.descriptors().empty())
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
      if (!message.payload().empty()) return malformed("SET_OWNER with a payload");
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
  if (!replied && (message.header().flags & flag_need_reply) && (protocol_features_ & protocol_reply_ack))
    return reply_number(message, 0);
  return {};
}

Status VhostUserBackEnd::dispatch_ring(MessageReader& message) {
  if (message.header().request == set_vring_addr) {
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
  switch (message.header().request) {
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
  return device_.features() | virtio::feature_transport | feature_protocol_features;
}

std::uint64_t VhostUserBackEnd::offered_protocol_features() const {
  return protocol_always | (device_.config().empty() ? 0 : protocol_config);
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

Status VhostUserBackEnd::set_memory_table(MessageReader& message) {
  MemoryTableHeader table;
  if (message.payload().size() < sizeof table) return malformed("SET_MEM_TABLE is too short");
  std::memcpy(&table, message.payload().data(), sizeof table);
  auto rest = message.payload().subspan(sizeof table);
  if (table.count == 0 || table.count > max_memory_regions ||
      rest.size() != table.count * sizeof(MemoryRegion))
    return malformed(
        fmt::format("SET_MEM_TABLE of {} regions in {} bytes", table.count, message.payload().size()));
  std::vector<MemoryRegion> regions(table.count);
  std::memcpy(regions.data(), rest.data(), rest.size());
  auto memory = GuestMemory::map(regions, message.descriptors(), limits_.max_memory_bytes);
  if (!memory) return fail(with_context(std::move(memory).error(), "the front end's memory table"));
  memory_ = std::move(*memory);
  for (auto& ring : rings_) ANCHORHOLD_CHECK(ring->queue.remap(memory_));
  return {};
}

Status VhostUserBackEnd::set_ring_descriptor(MessageReader& message) {
  auto value = ANCHORHOLD_TRY(message.as<std::uint64_t>());
  auto index = ANCHORHOLD_TRY(ring_index(value & ring_index_mask));
  bool none = value & ring_no_descriptor;
  if ((value & ~(ring_index_mask | ring_no_descriptor)) != 0 ||
      message.descriptors().size() != (none ? 0u : 1u))
    return malformed(
        fmt::format("{} with {} descriptors", name(message.header().request), message.descriptors().size()));
  UniqueFd fd;
  if (!none) {
    fd = std::move(message.descriptors()[0]);
    ANCHORHOLD_CHECK(set_nonblocking(fd.get()));
  }
  switch (message.header().request) {
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
  // How often it was written to means nothing, so it is not read.
  constexpr auto each_kick = ready::readable | ready::edge;
  ring.watch = ANCHORHOLD_TRY(loop_.watch(ring.kick.get(), each_kick, [this, index](std::uint32_t) {
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

Status VhostUserBackEnd::get_config(const MessageReader& message) {
  auto config = device_.config();
  ConfigHeader asked;
  if (message.payload().size() < sizeof asked) return malformed("GET_CONFIG is too short");
  std::memcpy(&asked, message.payload().data(), sizeof asked);
  if (config.empty() || asked.size != message.payload().size() - sizeof asked ||
      asked.offset > config.size() || asked.size > config.size() - asked.offset)
    return malformed(
        fmt::format("GET_CONFIG of {} bytes at {} (there are {})", asked.size, asked.offset, config.size()));
  std::vector<std::byte> answer(sizeof asked + asked.size);
  std::memcpy(answer.data(), &asked, sizeof asked);
  std::memcpy(answer.data() + sizeof asked, config.data() + asked.offset, asked.size);
  return reply(message, answer);
}

Status VhostUserBackEnd::reply_number(const MessageReader& message, std::uint64_t value) {
  return reply(message, std::as_bytes(std::span(&value, 1)));
}

Status VhostUserBackEnd::reply(const MessageReader& message, std::span<const std::byte> payload) {
  auto bytes = encode(message.header().request, version | flag_reply, payload);
  auto sent = send_message_now(connection_.get(), bytes, {});
  if (sent || sent.error().code != ErrorCode::unavailable) return sent;
  end({});
  return {};
}

}  // namespace anchorhold::vsock
