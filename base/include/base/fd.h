// Owned file descriptors, and passing them between our processes. All descriptors made here are
// close-on-exec.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"

namespace anchorhold {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// A connected pair of unix sockets; type is SOCK_STREAM or SOCK_SEQPACKET.
Result<std::pair<UniqueFd, UniqueFd>> socket_pair(int type);
struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
Result<Pipe> make_pipe();
Result<UniqueFd> duplicate(int fd);
Status set_nonblocking(int fd, bool nonblocking = true);

// One message with descriptors on a unix socket (SCM_RIGHTS, unix(7)). At most 16 descriptors a message.
inline constexpr std::size_t max_passed_descriptors = 16;
Status send_with_descriptors(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors);
struct ReceivedMessage {
  std::size_t size = 0;  // bytes written to the buffer; 0 with no descriptors: the other side closed
  std::vector<UniqueFd> descriptors;
  bool lost_descriptors = false;  // there were more, and this process may not open as many
};
// A message longer than the buffer, or with more descriptors than allowed, is an error (data_loss).
Result<ReceivedMessage> receive_with_descriptors(int socket, std::span<std::byte> buffer);
// The same two without waiting. Sending: resource_exhausted when the other side does not read; of a stream
// socket the message goes whole or not at all, as far as it has room for it. Receiving: nothing when nothing
// is there; what came without all of its descriptors says so. Both: unavailable when the other side is gone.
Status send_message_now(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors);
Result<std::optional<ReceivedMessage>> receive_message_now(int socket, std::span<std::byte> buffer);

// Whole buffers, over short writes, EINTR and EAGAIN (waits with poll).
Status write_all(int fd, std::span<const std::byte> bytes);
// Reads until the buffer is full or the end; returns the count.
Result<std::size_t> read_full(int fd, std::span<std::byte> buffer);

}  // namespace anchorhold
