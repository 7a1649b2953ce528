#include "stream_device_core.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace anchorhold::vsock {
namespace {

// Ports the host's side of dialled streams gets; listening ports are below.
constexpr std::uint32_t first_dial_port = 0x40000000;
constexpr std::size_t max_refused_ports = 64;
// The kernel's default upper bound (net.core.wmem_max); it doubles the value for its own bookkeeping.
constexpr int socket_buffer = 212992;
// Of streams that have a small buffer, or come when there are many.
constexpr int small_socket_buffer = 16 << 10;

void set_send_buffer(int socket, int bytes) {
  (void)setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

}  // namespace

Result<std::unique_ptr<StreamDevice>> StreamDevice::create(EventLoop& loop, UniqueFd control,
                                                           std::uint32_t guest_cid,
                                                           StreamDeviceLimits limits) {
  if (guest_cid < 3 || guest_cid == ~std::uint32_t{0})
    return fail(ErrorCode::invalid_argument, fmt::format("{} is not a guest's cid", guest_cid));
  auto device = std::make_unique<StreamDeviceCore>(loop, std::move(control), guest_cid, limits);
  ANCHORHOLD_CHECK(device->prepare());
  return device;
}

StreamDeviceCore::StreamDeviceCore(EventLoop& loop, UniqueFd control, std::uint32_t guest_cid,
                                   StreamDeviceLimits limits)
    : loop_(loop),
      control_(std::move(control)),
      guest_cid_(guest_cid),
      config_cid_(guest_cid),
      limits_(limits),
      next_dial_port_(first_dial_port),
      chains_(batch_chains),
      rooms_(batch_chains) {}

Status StreamDeviceCore::prepare() {
  refused_timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!refused_timer_) return fail_errno(errno, "timerfd_create");
  refused_timer_watch_ =
      ANCHORHOLD_TRY(loop_.watch(refused_timer_.get(), ready::readable, [this](std::uint32_t) {
        std::uint64_t expirations;
        (void)!read(refused_timer_.get(), &expirations, sizeof expirations);
        refused_timer_running_ = false;
        flush_refused();
      }));
  control_watch_ = ANCHORHOLD_TRY(loop_.watch(control_.get(), ready::readable, [this](std::uint32_t events) {
    if (events & ready::writable) hand_over_more();
    control_ready();
  }));
  loop_.at_turn_end([this] { return turn(); });
  return {};
}

Status StreamDeviceCore::attach(UniqueFd front_end) {
  back_end_ = ANCHORHOLD_TRY(VhostUserBackEnd::create(loop_, std::move(front_end), *this));
  return {};
}

void StreamDeviceCore::say_end(const Status& cause) {
  ControlMessage message;
  message.type = ControlMessage::Type::ended;
  if (!cause) {
    message.code = static_cast<std::uint32_t>(cause.error().code);
    message.set_text(cause.error().message);
  }
  // The host may be gone already: then nobody needs to know.
  (void)send_control(control_.get(), message);
}

void StreamDeviceCore::started(std::size_t queue) {
  // A pause of the machine goes on where it was; a reset of the guest's driver begins anew, and its streams
  // are gone.
  if (back_end_->queue(queue).position() != stopped_at_[queue]) remove_all();
  ring_ready_[queue] = true;
}

void StreamDeviceCore::stopping(std::size_t queue) {
  stopped_at_[queue] = back_end_->queue(queue).position();
  ring_ready_[queue] = false;
}

void StreamDeviceCore::kicked(std::size_t queue) {
  ring_ready_[queue] = true;
}

void StreamDeviceCore::ended(Status cause) {
  ended_ = true;
  remove_all();
  loop_.stop(std::move(cause));
}

void StreamDeviceCore::fault(std::string what) {
  fault(Error{ErrorCode::invalid_argument, "the guest: " + what, {}});
}

bool StreamDeviceCore::turn() {
  if (!back_end_ || ended_) return false;
  take_from_guest();
  if (!ended_) give_to_guest();
  if (ended_) return false;
  const std::size_t streams = streams_.size() + orphans_.size();
  was_many_ = was_many_ || streams > many_streams;
  if (was_many_ && streams < few_streams) {
    was_many_ = false;
    malloc_trim(0);
  }
  bool more_from_guest = ring_ready_[from_guest] && replies_.size() < max_replies;
  bool more_to_guest = ring_ready_[to_guest] && (!ready_.empty() || !replies_.empty());
  return more_from_guest || more_to_guest;
}

void StreamDeviceCore::control_ready() {
  for (;;) {
    auto received = receive_control(control_.get());
    if (!received) {
      control_watch_ = {};
      // Streams of a host that is gone have nobody left to read them.
      return loop_.stop(fail(ErrorCode::cancelled, "the host closed the device"));
    }
    if (!*received) return;
    if (auto status = obey((*received)->message); !status) return loop_.stop(std::move(status));
  }
}

Status StreamDeviceCore::obey(const ControlMessage& message) {
  using Type = ControlMessage::Type;
  switch (message.type) {
    case Type::listen:
      listening_[message.port] = static_cast<std::uint32_t>(message.values[0]);
      return {};
    case Type::unlisten:
      listening_.erase(message.port);
      return {};
    case Type::dial:
      dial(message);
      return {};
    case Type::cancel:
      cancel(message.id);
      return {};
    case Type::ask_statistics:
      answer_statistics(message.id);
      return {};
    default:
      return fail(ErrorCode::internal, "a control message of unknown type");
  }
}

void StreamDeviceCore::dial(const ControlMessage& message) {
  StreamKey key{next_dial_port_++, message.port};
  if (next_dial_port_ == ~std::uint32_t{0}) next_dial_port_ = first_dial_port;
  Stream* stream = find(key.value()) ? nullptr : add(key, Stream::Kind::dialed);
  if (!stream) {
    Stream failed(key, Stream::Kind::dialed, 0);
    failed.dial_id = message.id;
    return dial_failed(failed, "too many streams are open");
  }
  stream->state = Stream::State::requesting;
  stream->dial_id = message.id;
  stream->notices = notice::request;
  enqueue(*stream);
}

void StreamDeviceCore::cancel(std::uint64_t id) {
  for (auto& [key, stream] : streams_) {
    if (stream->dial_id != id || stream->state != Stream::State::requesting) continue;
    stream->dial_id = 0;
    return reset(*stream, true);
  }
}

void StreamDeviceCore::dial_failed(const Stream& stream, std::string_view why) {
  ControlMessage message;
  message.type = ControlMessage::Type::dial_failed;
  message.id = stream.dial_id;
  message.set_text(why);
  (void)send_control(control_.get(), message);
}

void StreamDeviceCore::answer_statistics(std::uint64_t id) {
  ControlMessage message;
  message.type = ControlMessage::Type::statistics;
  message.id = id;
  const auto& s = statistics_;
  message.values = {s.bytes_to_guest,
                    s.bytes_from_guest,
                    streams_.size() + orphans_.size(),
                    s.accepted,
                    s.dialed,
                    s.refused,
                    s.dropped_packets,
                    s.resets};
  (void)send_control(control_.get(), message);
}

void StreamDeviceCore::report_refused(std::uint32_t port) {
  ++statistics_.refused;
  // A guest that tries many ports fast is told of in bundles, so that it cannot flood the host.
  if (refused_.size() < max_refused_ports || refused_.contains(port)) ++refused_[port];
  if (!refused_timer_running_) flush_refused();
}

void StreamDeviceCore::flush_refused() {
  if (refused_.empty()) return;
  while (!refused_.empty()) {
    auto first = refused_.begin();
    ControlMessage message;
    message.type = ControlMessage::Type::refused;
    message.port = first->first;
    message.values[0] = first->second;
    if (!send_control(control_.get(), message)) break;
    refused_.erase(first);
  }
  itimerspec half_second{{}, {0, 500'000'000}};
  refused_timer_running_ = timerfd_settime(refused_timer_.get(), 0, &half_second, nullptr) == 0;
}

Status StreamDeviceCore::bridge(Stream& stream, const ControlMessage& message) {
  auto [ours, hosts] = ANCHORHOLD_TRY(socket_pair(SOCK_STREAM));
  const bool many = stream.kind == Stream::Kind::bytes && count_of(stream.kind) > limits_.large_streams;
  set_send_buffer(hosts.get(), many ? small_socket_buffer : socket_buffer);
  set_send_buffer(ours.get(), stream.kind == Stream::Kind::bytes ? small_socket_buffer : socket_buffer);
  stream.socket = std::move(ours);
  ANCHORHOLD_CHECK(set_nonblocking(stream.socket.get()));
  stream.watch = ANCHORHOLD_TRY(loop_.watch(
      stream.socket.get(), ready::readable | ready::peer_done | ready::edge,
      [this, stream_pointer = &stream](std::uint32_t events) { host_event(*stream_pointer, events); }));
  ANCHORHOLD_CHECK(hand_over(message, std::move(hosts)));
  stream.state = Stream::State::open;
  return {};
}

// The host reads them as fast as it can; a guest that dials faster waits here, and what it sends in its
// socket.
Status StreamDeviceCore::hand_over(const ControlMessage& message, UniqueFd hosts) {
  if (handing_over_.empty()) {
    auto sent = send_control(control_.get(), message, hosts.get());
    if (sent || sent.error().code != ErrorCode::resource_exhausted) return sent;
    ANCHORHOLD_CHECK(control_watch_.change(ready::readable | ready::writable));
  }
  if (handing_over_.size() >= max_handing_over)
    return fail(ErrorCode::resource_exhausted, "the host does not take its streams");
  handing_over_.push_back({message, std::move(hosts)});
  return {};
}

void StreamDeviceCore::hand_over_more() {
  for (; !handing_over_.empty(); handing_over_.pop_front()) {
    const auto& [message, hosts] = handing_over_.front();
    auto sent = send_control(control_.get(), message, hosts.get());
    if (!sent && sent.error().code == ErrorCode::resource_exhausted) return;
  }
  if (control_watch_) (void)control_watch_.change(ready::readable);
}

void StreamDeviceCore::host_event(Stream& stream, std::uint32_t events) {
  if (events & (ready::readable | ready::peer_done | ready::hangup | ready::error)) stream.readable = true;
  if (events & (ready::peer_done | ready::hangup)) stream.end_told = true;
  if (events & (ready::hangup | ready::error)) stream.hangup = true;
  if (events & (ready::writable | ready::hangup | ready::error)) {
    stream.drain();
    announce_if_due(stream);
  }
  settle(stream);
}

Stream* StreamDeviceCore::find(std::uint64_t key) {
  auto found = streams_.find(key);
  return found == streams_.end() ? nullptr : found->second.get();
}

std::size_t StreamDeviceCore::bound_of(Stream::Kind kind) const {
  switch (kind) {
    case Stream::Kind::bytes:
      return limits_.byte_streams;
    case Stream::Kind::calls:
      return limits_.call_streams;
    case Stream::Kind::dialed:
      return limits_.dialed_streams;
  }
  std::abort();
}

Stream* StreamDeviceCore::add(StreamKey key, Stream::Kind kind) {
  if (count_of(kind) >= bound_of(kind)) {
    // Room is made by streams that only wait for the guest's last word.
    if (lingering_ == 0) return nullptr;
    auto lingering = std::find_if(streams_.begin(), streams_.end(), [kind](const auto& entry) {
      return entry.second->kind == kind && entry.second->state == Stream::State::lingering;
    });
    if (lingering == streams_.end()) return nullptr;
    reset(*lingering->second, true);
  }
  const bool small = kind == Stream::Kind::bytes;
  auto stream = std::make_unique<Stream>(key, kind, small ? limits_.small_buffer : limits_.stream_buffer);
  Stream* added = stream.get();
  streams_[key.value()] = std::move(stream);
  ++count_of(kind);
  return added;
}

void StreamDeviceCore::grow_if_used(Stream& stream) {
  // A backlog's size is that of the buffer when it began.
  if (stream.buffer_size >= limits_.stream_buffer || stream.received < stream.buffer_size / 2 ||
      !stream.backlog.empty() || !stream.socket || large_ >= limits_.large_streams)
    return;
  ++large_;
  stream.large = true;
  stream.buffer_size = limits_.stream_buffer;
  set_send_buffer(stream.socket.get(), socket_buffer);
  stream.notices |= notice::credit_update;
  enqueue(stream);
}

void StreamDeviceCore::enqueue(Stream& stream) {
  if (stream.queued) return;
  stream.queued = true;
  ready_.push_back(stream.key.value());
}

void StreamDeviceCore::settle(Stream& stream) {
  if (auto orphan = orphans_.find(&stream); orphan != orphans_.end()) {
    if (stream.backlog.empty()) {
      forget(stream);
      orphans_.erase(orphan);
    }
    return;
  }
  if (stream.state == Stream::State::requesting) return;
  bool drained = stream.backlog.empty();
  if (!stream.guest_sends && !stream.guest_receives && drained) return reset(stream, true);
  if (!stream.guest_sends && drained && stream.socket && !stream.host_told_end) {
    ::shutdown(stream.socket.get(), SHUT_WR);
    stream.host_told_end = true;
  }
  if (stream.hangup && !stream.host_sends) stream.host_receives = false;
  if (stream.shutdown_due() || stream.data_due() || stream.notices != 0) enqueue(stream);
  bool host_knows = !stream.guest_sends ? stream.host_told_end : !stream.host_receives;
  if (stream.socket && drained && host_knows && !stream.host_sends && !stream.shutdown_due()) {
    stream.watch = {};
    stream.socket.reset();
    if (stream.state == Stream::State::open) {
      stream.state = Stream::State::lingering;
      ++lingering_;
    }
  }
}

void StreamDeviceCore::reset(Stream& stream, bool tell_guest, std::string_view why) {
  if (stream.dial_id != 0 && stream.state == Stream::State::requesting)
    dial_failed(stream, !why.empty()
                            ? std::string(why)
                            : fmt::format("nothing in the guest listens on port {}", stream.key.guest_port));
  if (tell_guest && !(stream.notices & notice::request)) {
    PacketHeader header = header_for(stream, operation::reset);
    replies_.push_back(header);
  }
  remove(stream);
}

void StreamDeviceCore::remove(Stream& stream) {
  // The key may be used again at once; an entry of it in ready_ then serves the new stream, which does no
  // harm.
  forget(stream);
  streams_.erase(stream.key.value());
}

void StreamDeviceCore::forget(const Stream& stream) {
  if (stream.large) --large_;
  if (stream.state == Stream::State::lingering) --lingering_;
  if (count_of(stream.kind)-- == bound_of(stream.kind)) told_full_ = false;
}

void StreamDeviceCore::remove_all() {
  for (const auto& [key, stream] : streams_)
    if (stream->state == Stream::State::requesting) dial_failed(*stream, "the guest's device was reset");
  streams_.clear();
  orphans_.clear();
  handing_over_.clear();
  std::fill(std::begin(counts_), std::end(counts_), 0);
  large_ = lingering_ = 0;
  ready_.clear();
  replies_.clear();
}

}  // namespace anchorhold::vsock
