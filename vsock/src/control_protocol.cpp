#include "control_protocol.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>

namespace anchorhold::vsock {

void ControlMessage::set_text(std::string_view text) {
  text_bytes = {};
  std::copy_n(text.begin(), std::min(text.size(), text_bytes.size()), text_bytes.begin());
}

std::string ControlMessage::text() const {
  return std::string(text_bytes.begin(), std::find(text_bytes.begin(), text_bytes.end(), '\0'));
}

Status send_control(int socket, const ControlMessage& message, int descriptor) {
  iovec part{const_cast<ControlMessage*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  while (sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return fail(ErrorCode::resource_exhausted, "the control socket is full");
    if (errno == EPIPE || errno == ECONNRESET)
      return fail(ErrorCode::unavailable, "the control socket is closed");
    return fail_errno(errno, "the control socket");
  }
  return {};
}

Result<std::optional<ReceivedControl>> receive_control(int socket) {
  ReceivedControl received;
  iovec part{&received.message, sizeof received.message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t size;
  while ((size = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return std::nullopt;
    if (errno == ECONNRESET) return fail(ErrorCode::unavailable, "the control socket is closed");
    return fail_errno(errno, "the control socket");
  }
  for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights; rights = CMSG_NXTHDR(&header, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    int descriptor;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    received.descriptor.reset(descriptor);
  }
  if (size == 0) return fail(ErrorCode::unavailable, "the control socket is closed");
  if (size != sizeof received.message || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
      received.message.magic != ControlMessage::expected_magic)
    return fail(ErrorCode::data_loss, fmt::format("a control message of {} bytes is not ours", size));
  return received;
}

}  // namespace anchorhold::vsock
