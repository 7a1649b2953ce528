// One stream between the guest and a unix socket of the host: its socket, its credit both ways, what is still
// to be said to the guest, and how far each of its four ends is closed. Knows nothing of rings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <sys/uio.h>

#include "base/error.h"
#include "base/fd.h"
#include "grpc_guard.h"
#include "packet.h"
#include "vsock/event_loop.h"

namespace anchorhold::vsock {

struct StreamKey {
  std::uint32_t host_port = 0;
  std::uint32_t guest_port = 0;
  std::uint64_t value() const { return (std::uint64_t{host_port} << 32) | guest_port; }
};

// Bytes of the guest that the host's socket had no room for: a ring of fixed size that exists only while it
// holds some.
class Backlog {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // The caller keeps size() + the bytes within the capacity.
  void append(std::span<const iovec> segments, std::size_t offset, std::size_t capacity);
  // The bytes, oldest first, in up to two pieces.
  std::span<const iovec> pieces();
  void consume(std::size_t count);
  void clear();

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t capacity_ = 0;
  std::size_t start_ = 0;
  std::size_t size_ = 0;
  iovec pieces_[2];
};

// What is to be said to the guest about a stream, besides data.
namespace notice {
inline constexpr unsigned request = 1;
inline constexpr unsigned response = 2;
inline constexpr unsigned credit_update = 4;
inline constexpr unsigned credit_request = 8;
}  // namespace notice

struct Stream {
  enum class State {
    requesting,  // the host dials, the guest has not answered
    open,
    lingering,  // closed at the host's side; waits for the guest to say so too
  };

  // Bounded in number each on its own.
  enum class Kind { bytes, calls, dialed };
  static constexpr std::size_t kinds = 3;

  Stream(StreamKey k, Kind what, std::uint32_t buffer) : key(k), kind(what), buffer_size(buffer) {}

  // Bytes the guest has room for.
  std::uint32_t credit() const {
    std::uint32_t used = sent - peer_forwarded;
    return used >= peer_buffer ? 0 : peer_buffer - used;
  }
  void learn_credit(const PacketHeader& header) {
    if (peer_buffer != header.buffer_size || peer_forwarded != header.forwarded) credit_requested = false;
    peer_buffer = header.buffer_size;
    peer_forwarded = header.forwarded;
  }
  // Whether the guest keeps to the credit it was given, if it sends so many bytes more.
  bool within_credit(std::uint32_t more) const { return received - announced + more <= buffer_size; }

  // Bytes from the guest, to the socket as far as it has room, the rest to the backlog. False: guest memory
  // is not there.
  bool deliver(std::span<const iovec> segments, std::size_t bytes);
  // The socket has room again.
  void drain();
  // Watches for room in the socket only while there is a backlog.
  void watch_room();

  bool data_waiting() const { return state == State::open && readable && host_sends && guest_receives; }
  // Something can be done about it: send it, or ask for credit.
  bool data_due() const { return data_waiting() && (credit() > 0 || !credit_requested); }
  // SHUTDOWN flags that the guest should know of.
  std::uint32_t shutdown_flags() const {
    return (host_receives ? 0 : shutdown_receive) | (host_sends ? 0 : shutdown_send);
  }
  bool shutdown_due() const { return state == State::open && shutdown_flags() & ~shutdown_told; }

  StreamKey key;
  Kind kind;
  State state = State::open;
  std::uint64_t dial_id = 0;
  UniqueFd socket;
  EventLoop::Watch watch;  // of socket
  bool readable = false;   // the socket may hold bytes
  bool end_told = false;   // the host will write no more: what is in the socket is the rest
  bool hangup = false;     // the host closed its end wholly
  bool watching_room = false;
  bool queued = false;  // in the device's list of streams with work
  bool large = false;   // has one of the large buffers, of which there are not enough for all
  unsigned notices = 0;
  std::uint32_t appetite = 4;  // buffers to take at the next read; grows while reads fill them

  // To the guest.
  std::uint32_t sent = 0;
  std::uint32_t peer_buffer = 0;
  std::uint32_t peer_forwarded = 0;
  bool credit_requested = false;
  // From the guest.
  std::uint32_t buffer_size;
  std::uint32_t received = 0;
  std::uint32_t forwarded = 0;
  std::uint32_t announced = 0;  // `forwarded` as the guest knows it
  Backlog backlog;
  std::optional<GrpcGuard> guard;  // of what the guest sends, on ports that carry gRPC

  // The four ends.
  bool guest_sends = true;
  bool guest_receives = true;
  bool host_sends = true;
  bool host_receives = true;
  bool host_told_end = false;  // the socket was shut down for writing
  std::uint32_t shutdown_told = 0;
};

}  // namespace anchorhold::vsock
