// The inside of StreamDevice: the streams, the two rings, and the control socket. What comes from the guest
// is in from_guest.cpp, what goes to it in to_guest.cpp, the host's side in stream_device_core.cpp.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "control_protocol.h"
#include "packet.h"
#include "stream.h"
#include "vsock/device.h"
#include "vsock/ports.h"
#include "vsock/stream_device.h"
#include "vsock/vhost_user.h"

namespace anchorhold::vsock {

class StreamDeviceCore final : public StreamDevice, private VhostUserDevice {
 public:
  StreamDeviceCore(EventLoop& loop, UniqueFd control, std::uint32_t guest_cid, StreamDeviceLimits limits);
  Status prepare();

  Status attach(UniqueFd front_end) override;
  void say_end(const Status& cause) override;

 private:
  enum RingIndex : std::size_t { to_guest = 0, from_guest = 1, ring_count = 2 };
  // A burst of more streams than the one, when it is down to the other, has its memory given back.
  static constexpr std::size_t many_streams = 1024;
  static constexpr std::size_t few_streams = 128;
  // Room for every chain of the largest ring that one system call may serve.
  static constexpr std::size_t batch_chains = 64;
  static constexpr std::size_t batch_segments = 512;
  static constexpr std::size_t max_replies = 1024;
  static constexpr std::size_t max_handing_over = 4096;

  // VhostUserDevice
  std::size_t queue_count() const override { return ring_count; }
  std::span<const std::byte> config() const override { return std::as_bytes(std::span(&config_cid_, 1)); }
  void started(std::size_t queue) override;
  void stopping(std::size_t queue) override;
  void kicked(std::size_t queue) override;
  void ended(Status cause) override;

  bool turn();  // once for each turn of the loop; true: there is more to do at once
  void fault(std::string what);
  void fault(Error error) { back_end_->fault(std::move(error)); }

  // stream_device_core.cpp: the host's side
  void control_ready();
  Status obey(const ControlMessage& message);
  void dial(const ControlMessage& message);
  void cancel(std::uint64_t id);
  void answer_statistics(std::uint64_t id);
  void dial_failed(const Stream& stream, std::string_view why);
  void report_refused(std::uint32_t port);
  void flush_refused();
  // Makes the socket pair and sends the host's end with the message.
  Status bridge(Stream& stream, const ControlMessage& message);
  Status hand_over(const ControlMessage& message, UniqueFd hosts);
  void hand_over_more();
  void host_event(Stream& stream, std::uint32_t events);
  Stream* find(std::uint64_t key);
  // Nothing when there are too many of the kind.
  Stream* add(StreamKey key, Stream::Kind kind);
  std::size_t bound_of(Stream::Kind kind) const;
  std::size_t& count_of(Stream::Kind kind) { return counts_[static_cast<std::size_t>(kind)]; }
  // More room for what is used.
  void grow_if_used(Stream& stream);
  // Before it is destroyed.
  void forget(const Stream& stream);
  void enqueue(Stream& stream);
  // After any of the four ends closed: says so to the side that does not know, and removes what is over.
  void settle(Stream& stream);
  // Ends the stream at once; the guest is told with a reset unless it said so itself.
  void reset(Stream& stream, bool tell_guest, std::string_view why = {});
  void remove(Stream& stream);
  void remove_all();

  // from_guest.cpp
  void take_from_guest();
  bool take(DescriptorChain& chain);  // false: the device ended
  void take_request(const PacketHeader& header);
  void take_response(Stream& stream);
  void take_shutdown(Stream& stream, std::uint32_t flags);
  void take_reset(Stream& stream);
  bool add_to_batch(Stream& stream, DescriptorChain& chain, std::uint32_t length);
  bool flush_batch();
  bool pass_guard(Stream& stream, std::size_t bytes);
  void refuse(const PacketHeader& header);
  void report_full(std::uint32_t port);
  void announce_if_due(Stream& stream);

  // to_guest.cpp
  enum class Progress { done, more, no_buffers, gone };
  void give_to_guest();
  Progress serve(Stream& stream);
  Progress send_notices(Stream& stream);
  Progress send_data(Stream& stream);
  Progress put(const PacketHeader& header);
  bool take_buffer(DescriptorChain& chain, bool& none);
  PacketHeader header_for(Stream& stream, std::uint16_t operation, std::uint32_t length = 0,
                          std::uint32_t flags = 0);

  EventLoop& loop_;
  UniqueFd control_;
  EventLoop::Watch control_watch_;
  UniqueFd refused_timer_;
  EventLoop::Watch refused_timer_watch_;
  const std::uint32_t guest_cid_;
  const std::uint64_t config_cid_;
  const StreamDeviceLimits limits_;
  std::unique_ptr<VhostUserBackEnd> back_end_;

  std::map<std::uint32_t, std::uint32_t> listening_;  // port → longest gRPC message, 0: plain bytes
  std::unordered_map<std::uint64_t, std::unique_ptr<Stream>> streams_;
  // The guest is done with these, the host has not read everything yet.
  std::unordered_map<Stream*, std::unique_ptr<Stream>> orphans_;
  std::size_t counts_[Stream::kinds] = {};  // of both
  std::size_t large_ = 0;
  std::size_t lingering_ = 0;
  bool told_full_ = false;
  bool was_many_ = false;  // streams, since memory was last given back
  std::uint32_t next_dial_port_;

  // Host's ends of streams that its socket had no room for yet.
  struct HandedOver {
    ControlMessage message;
    UniqueFd hosts;
  };
  std::deque<HandedOver> handing_over_;

  std::deque<std::uint64_t> ready_;   // keys of streams with something for the guest, served in turn
  std::deque<PacketHeader> replies_;  // resets for what is no stream (any more)
  bool ring_ready_[ring_count] = {};  // chains may be waiting
  std::uint16_t stopped_at_[ring_count] = {};

  std::vector<DescriptorChain> chains_;  // reused for every batch
  std::vector<std::uint32_t> rooms_;     // payload bytes of each of them
  std::vector<iovec> segments_;
  std::vector<std::byte> inspected_;  // a batch's copy, which the guest cannot change any more
  Stream* batch_stream_ = nullptr;
  std::size_t batch_count_ = 0;
  std::size_t batch_bytes_ = 0;
  DescriptorChain single_;

  std::map<std::uint32_t, std::uint64_t> refused_;  // port → times, not reported yet
  bool refused_timer_running_ = false;
  bool ended_ = false;
  VsockStatistics statistics_;
};

}  // namespace anchorhold::vsock
