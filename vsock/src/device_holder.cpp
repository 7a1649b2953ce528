#include "vsock/device_holder.h"

#include <array>
#include <fmt/format.h>
#include <poll.h>

#include "vhost_user_protocol.h"
#include "virtio.h"
#include "vsock/guest_memory.h"

namespace anchorhold::vsock {

using namespace vhost_user;

namespace {

constexpr std::uint64_t offered_features = virtio::feature_transport | feature_protocol_features;
constexpr int answer_limit_ms = 10'000;

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Result<std::unique_ptr<DeviceHolder>> DeviceHolder::create(EventLoop& loop, UniqueFd connection,
                                                           std::size_t queues, Ended ended) {
  ANCHORHOLD_CHECK(set_nonblocking(connection.get()));
  std::unique_ptr<DeviceHolder> holder(
      new DeviceHolder(loop, std::move(connection), queues, std::move(ended)));
  holder->connection_watch_ =
      ANCHORHOLD_TRY(loop.watch(holder->connection_.get(), ready::readable,
                                [self = holder.get()](std::uint32_t) { self->connection_ready(); }));
  return holder;
}

DeviceHolder::DeviceHolder(EventLoop& loop, UniqueFd connection, std::size_t queues, Ended ended)
    : loop_(loop),
      connection_(std::move(connection)),
      ended_(std::move(ended)),
      rings_(queues),
      incoming_(std::make_unique<MessageReader>()) {}

DeviceHolder::~DeviceHolder() = default;

void DeviceHolder::end(Status cause) {
  if (!connection_) return;
  connection_watch_ = {};
  device_watch_ = {};
  // Closed on both sides: front end and device learn that the other is gone.
  connection_.reset();
  device_.reset();
  auto ended = std::move(ended_);
  ended(std::move(cause));
}

void DeviceHolder::connection_ready() {
  auto got = incoming_->receive(connection_.get());
  if (!got) return end(fail(std::move(got).error()));
  if (*got == MessageReader::Got::end) return end({});
  if (*got == MessageReader::Got::part) return;
  Status status = device_ ? pass_on(*incoming_) : hold(*incoming_);
  incoming_->clear();
  if (!status) end(status.error().code == ErrorCode::unavailable ? Status{} : std::move(status));
}

Status DeviceHolder::pass_on(MessageReader& message) {
  std::vector<int> descriptors;
  for (const auto& fd : message.descriptors()) descriptors.push_back(fd.get());
  return send_message_now(device_.get(), message.bytes(), descriptors);
}

void DeviceHolder::device_ready() {
  std::array<std::byte, sizeof(Header) + max_payload> buffer;
  auto received = receive_with_descriptors(device_.get(), buffer);
  if (!received || received->size == 0) return end({});  // why it went, its own host knows
  if (!received->descriptors.empty())
    return end(fail(ErrorCode::invalid_argument, "the device that was attached sends descriptors"));
  auto sent = send_message_now(connection_.get(), std::span(buffer).first(received->size), {});
  if (!sent) end(sent.error().code == ErrorCode::unavailable ? Status{} : std::move(sent));
}

// The ring's number is the first word of every message about one.
Result<DeviceHolder::KeptMessages*> DeviceHolder::ring_of(const MessageReader& message) {
  std::uint32_t index = 0;
  if (message.payload().size() < sizeof index)
    return malformed(fmt::format("{} is too short", name(message.header().request)));
  std::memcpy(&index, message.payload().data(), sizeof index);
  const auto request = message.header().request;
  if (request == set_vring_kick || request == set_vring_call || request == set_vring_err)
    index &= ring_index_mask;
  if (index >= rings_.size()) return malformed(fmt::format("ring {} of {}", index, rings_.size()));
  return &rings_[index];
}

Status DeviceHolder::hold(MessageReader& message) {
  const auto request = message.header().request;
  KeptMessages* place = &kept_;
  std::size_t most_descriptors = 0;
  switch (request) {
    case get_features:
      return reply_number(message, offered_features);
    case get_protocol_features:
      return reply_number(message, protocol_always);
    case get_queue_num:
      return reply_number(message, rings_.size());
    case get_vring_base: {
      auto state = ANCHORHOLD_TRY(message.as<RingState>());
      auto& ring = *ANCHORHOLD_TRY(ring_of(message));
      RingState base{state.index, 0};
      if (auto kept = ring.find(set_vring_base); kept != ring.end())
        std::memcpy(&base, kept->second.payload.data(), sizeof base);
      // Nothing moved in the ring; who stops it gives new descriptors when it goes on.
      for (auto stopped : {set_vring_kick, set_vring_call, set_vring_err}) ring.erase(stopped);
      return reply(message, bytes_of(base));
    }
    case set_owner:
      if (!message.payload().empty()) return malformed("SET_OWNER with a payload");
      break;
    case set_features:
      ANCHORHOLD_TRY(message.as<std::uint64_t>());
      break;
    case set_protocol_features:
      acknowledges_ = (ANCHORHOLD_TRY(message.as<std::uint64_t>()) & protocol_reply_ack) != 0;
      break;
    case set_mem_table:
      most_descriptors = max_memory_regions;
      break;
    case set_vring_addr:
      ANCHORHOLD_TRY(message.as<RingAddress>());
      place = ANCHORHOLD_TRY(ring_of(message));
      break;
    case set_vring_num:
    case set_vring_base:
    case set_vring_enable:
      ANCHORHOLD_TRY(message.as<RingState>());
      place = ANCHORHOLD_TRY(ring_of(message));
      break;
    case set_vring_kick:
    case set_vring_call:
    case set_vring_err:
      ANCHORHOLD_TRY(message.as<std::uint64_t>());
      place = ANCHORHOLD_TRY(ring_of(message));
      most_descriptors = 1;
      break;
    default:
      return malformed(fmt::format("request {} was not offered", static_cast<std::uint32_t>(request)));
  }
  if (message.descriptors().size() > most_descriptors)
    return malformed(fmt::format("{} with {} descriptors", name(request), message.descriptors().size()));
  (*place)[request] = {{message.payload().begin(), message.payload().end()},
                       std::move(message.descriptors())};
  if ((message.header().flags & flag_need_reply) && acknowledges_) return reply_number(message, 0);
  return {};
}

Status DeviceHolder::reply(const MessageReader& message, std::span<const std::byte> payload) {
  return send_message_now(connection_.get(), encode(message.header().request, version | flag_reply, payload),
                          {});
}

Status DeviceHolder::reply_number(const MessageReader& message, std::uint64_t value) {
  return reply(message, bytes_of(value));
}

Result<std::uint64_t> DeviceHolder::ask(int device, std::uint32_t request) {
  ANCHORHOLD_CHECK(send_message_now(device, encode(static_cast<Request>(request), version, {}), {}));
  std::array<std::byte, sizeof(Header) + sizeof(std::uint64_t)> answer;
  std::size_t have = 0;
  while (have < answer.size()) {
    pollfd entry{device, POLLIN, 0};
    if (poll(&entry, 1, answer_limit_ms) <= 0)
      return fail(ErrorCode::deadline_exceeded, "the device does not answer");
    auto received = receive_with_descriptors(device, std::span(answer).subspan(have));
    if (!received || received->size == 0)
      return fail(ErrorCode::unavailable, "the device refused what the guest had set up");
    have += received->size;
  }
  Header header;
  std::uint64_t value;
  std::memcpy(&header, answer.data(), sizeof header);
  std::memcpy(&value, answer.data() + sizeof header, sizeof value);
  if (header.request != request || header.flags != (version | flag_reply) || header.size != sizeof value)
    return fail(ErrorCode::failed_precondition, "the device answers something else than it was asked");
  return value;
}

Status DeviceHolder::say(int device, std::uint32_t request, const Kept& kept) {
  std::vector<int> descriptors;
  for (const auto& fd : kept.descriptors) descriptors.push_back(fd.get());
  return send_message_now(device, encode(static_cast<Request>(request), version, kept.payload), descriptors);
}

Status DeviceHolder::tell_all(int device) const {
  auto say_if_kept = [&](const KeptMessages& messages, Request request) -> Status {
    auto kept = messages.find(request);
    return kept == messages.end() ? Status{} : say(device, request, kept->second);
  };
  for (auto request : {set_owner, set_protocol_features, set_features, set_mem_table})
    ANCHORHOLD_CHECK(say_if_kept(kept_, request));
  for (const auto& ring : rings_)
    for (auto request : {set_vring_num, set_vring_base, set_vring_addr, set_vring_call, set_vring_err,
                         set_vring_kick, set_vring_enable})
      ANCHORHOLD_CHECK(say_if_kept(ring, request));
  return {};
}

Status DeviceHolder::attach(UniqueFd device) {
  if (device_) return fail(ErrorCode::failed_precondition, "a device is attached already");
  if (!connection_) return fail(ErrorCode::unavailable, "the front end is gone");
  ANCHORHOLD_CHECK(set_nonblocking(device.get()));
  const int fd = device.get();
  if (ANCHORHOLD_TRY(ask(fd, get_features)) != offered_features ||
      ANCHORHOLD_TRY(ask(fd, get_protocol_features)) != protocol_always ||
      ANCHORHOLD_TRY(ask(fd, get_queue_num)) < rings_.size())
    return fail(ErrorCode::failed_precondition, "the device is another one than the guest was promised");
  ANCHORHOLD_CHECK(tell_all(fd));
  ANCHORHOLD_TRY(ask(fd, get_features));  // answered: all of it was understood
  device_watch_ = ANCHORHOLD_TRY(loop_.watch(fd, ready::readable, [this](std::uint32_t) { device_ready(); }));
  device_ = std::move(device);
  kept_.clear();
  for (auto& ring : rings_) ring.clear();
  return {};
}

}  // namespace anchorhold::vsock
