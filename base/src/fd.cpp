#include "base/fd.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace anchorhold {
namespace {

void wait_for(int fd, short events) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  (void)poll(&entry, 1, -1);
}

// -1 with errno.
ssize_t send_once(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors, int flags) {
  if (descriptors.size() > max_passed_descriptors) {
    errno = EINVAL;
    return -1;
  }
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * max_passed_descriptors)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

// 0, or what errno says; EMSGSIZE: it was longer than the buffer, or had too many descriptors; EMFILE: not
// all of them could be had.
int receive_once(int socket, std::span<std::byte> buffer, ReceivedMessage& received, int flags) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * max_passed_descriptors)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size;
  do {
    size = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return errno;
  received.size = static_cast<std::size_t>(size);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
  if (message.msg_flags & MSG_TRUNC) return EMSGSIZE;
  if (!(message.msg_flags & MSG_CTRUNC)) return 0;
  return received.descriptors.size() == max_passed_descriptors ? EMSGSIZE : EMFILE;
}

}  // namespace

void UniqueFd::reset(int fd) {
  int old = std::exchange(fd_, fd);
  if (old >= 0) close(old);
}

Result<std::pair<UniqueFd, UniqueFd>> socket_pair(int type) {
  int fds[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0) return fail_errno(errno, "socketpair");
  return std::pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Result<UniqueFd> duplicate(int fd) {
  int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return fail_errno(errno, "duplicating a descriptor");
  return UniqueFd(copy);
}

Status set_nonblocking(int fd, bool nonblocking) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return fail_errno(errno, "reading descriptor flags");
  int wanted = nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  if (wanted != flags && fcntl(fd, F_SETFL, wanted) != 0)
    return fail_errno(errno, "setting descriptor flags");
  return {};
}

Status send_with_descriptors(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors) {
  for (;;) {
    ssize_t sent = send_once(socket, bytes, descriptors, 0);
    if (sent >= 0) {
      auto rest = bytes.subspan(static_cast<std::size_t>(sent));
      return rest.empty() ? Status{} : write_all(socket, rest);
    }
    if (errno != EAGAIN) return fail_errno(errno, "sending a message");
    wait_for(socket, POLLOUT);
  }
}

Status send_message_now(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors) {
  ssize_t sent = send_once(socket, bytes, descriptors, MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(bytes.size())) return {};
  if (sent >= 0) return fail(ErrorCode::data_loss, "a socket had room for a part of a message only");
  // ETOOMANYREFS: more descriptors are on their way than one may have.
  if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
    return fail(ErrorCode::resource_exhausted, "the other side of a socket does not read");
  if (errno == EPIPE || errno == ECONNRESET)
    return fail(ErrorCode::unavailable, "the other side of a socket is gone");
  return fail_errno(errno, "sending a message");
}

Result<ReceivedMessage> receive_with_descriptors(int socket, std::span<std::byte> buffer) {
  ReceivedMessage received;
  int error = receive_once(socket, buffer, received, 0);
  if (error == EMSGSIZE) return fail(ErrorCode::data_loss, "a message was longer than its protocol allows");
  if (error != 0) return fail_errno(error, "receiving a message");
  return received;
}

Result<std::optional<ReceivedMessage>> receive_message_now(int socket, std::span<std::byte> buffer) {
  ReceivedMessage received;
  int error = receive_once(socket, buffer, received, MSG_DONTWAIT);
  received.lost_descriptors = error == EMFILE;
  if (received.lost_descriptors) return received;
  if (error == EAGAIN) return std::nullopt;
  if (error == ECONNRESET || (error == 0 && received.size == 0))
    return fail(ErrorCode::unavailable, "the other side of a socket is gone");
  if (error == EMSGSIZE) return fail(ErrorCode::data_loss, "a message was longer than its protocol allows");
  if (error != 0) return fail_errno(error, "receiving a message");
  return received;
}

Status write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      wait_for(fd, POLLOUT);
    } else if (errno != EINTR) {
      return fail_errno(errno, "writing");
    }
  }
  return {};
}

Result<std::size_t> read_full(int fd, std::span<std::byte> buffer) {
  std::size_t count = 0;
  while (count < buffer.size()) {
    ssize_t got = read(fd, buffer.data() + count, buffer.size() - count);
    if (got > 0) {
      count += static_cast<std::size_t>(got);
    } else if (got == 0) {
      break;
    } else if (errno == EAGAIN) {
      wait_for(fd, POLLIN);
    } else if (errno != EINTR) {
      return fail_errno(errno, "reading");
    }
  }
  return count;
}

}  // namespace anchorhold
