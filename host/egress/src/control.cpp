#include "egress/control.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/secret.h"

namespace anchorhold::egress {
namespace {

constexpr std::uint32_t control_magic = 0x31454841;  // "AHE1"

struct Header {
  std::uint32_t magic;
  ControlType type;
  std::uint16_t reserved;
  std::uint32_t code;
  std::uint32_t id_low, id_high;
};
static_assert(sizeof(Header) == control_header_bytes, "no padding");

bool known(ControlType type) {
  return (type >= ControlType::trust && type <= ControlType::recorded) ||
         (type >= ControlType::sealed && type <= ControlType::fatal);
}

}  // namespace

std::string encode_control(const ControlMessage& message) {
  Header header{control_magic,
                message.type,
                0,
                message.code,
                static_cast<std::uint32_t>(message.id),
                static_cast<std::uint32_t>(message.id >> 32)};
  std::string bytes;
  bytes.reserve(sizeof header + message.payload.size());
  bytes.append(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes += message.payload;
}

Result<ControlMessage> parse_control(std::string_view bytes) {
  Header header;
  if (bytes.size() < sizeof header || bytes.size() > sizeof header + max_control_payload)
    return fail(ErrorCode::data_loss, fmt::format("a control message of {} bytes", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != control_magic || header.reserved != 0 || !known(header.type))
    return fail(ErrorCode::data_loss, "a control message that is not ours");
  ControlMessage message;
  message.type = header.type;
  message.code = header.code;
  message.id = std::uint64_t{header.id_high} << 32 | header.id_low;
  message.payload = bytes.substr(sizeof header);
  return message;
}

Status send_control(int socket, const ControlMessage& message) {
  if (message.payload.size() > max_control_payload)
    return fail(ErrorCode::invalid_argument, "a control message is too long");
  std::string bytes = encode_control(message);
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (int descriptor = message.descriptor.get(); descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  ssize_t sent;
  while ((sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  int error = errno;
  if (message.type == ControlType::secret) wipe(bytes);
  if (sent >= 0) return {};
  if (error == EAGAIN || error == ENOBUFS || error == ETOOMANYREFS)
    return fail(ErrorCode::resource_exhausted, "the control socket is full");
  if (error == EPIPE || error == ECONNRESET)
    return fail(ErrorCode::unavailable, "the control socket is closed");
  return fail_errno(error, "the control socket");
}

Result<std::optional<ControlMessage>> receive_control(int socket) {
  // One byte more than the longest, so that a longer one is seen to be one.
  static thread_local std::vector<char> buffer(control_header_bytes + max_control_payload + 1);
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * max_passed_descriptors)];
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
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights; rights = CMSG_NXTHDR(&header, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(rights) + i * sizeof descriptor, sizeof descriptor);
      descriptors.emplace_back(descriptor);
    }
  }
  if (size == 0) return fail(ErrorCode::unavailable, "the control socket is closed");
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || descriptors.size() > 1)
    return fail(ErrorCode::data_loss, "a control message that is not ours");
  auto message = parse_control({buffer.data(), static_cast<std::size_t>(size)});
  if (message && message->type == ControlType::secret)
    sodium_memzero(buffer.data(), static_cast<std::size_t>(size));
  if (!message) return fail(std::move(message).error());
  if (!descriptors.empty()) message->descriptor = std::move(descriptors[0]);
  return std::optional(std::move(*message));
}

Result<UniqueFd> text_descriptor(std::string_view text) {
  if (text.size() > max_passed_text)
    return fail(ErrorCode::resource_exhausted, fmt::format("a text of {} bytes is too long", text.size()));
  UniqueFd fd(memfd_create("anchorhold-egress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "memfd_create");
  ANCHORHOLD_CHECK(write_all(fd.get(), std::as_bytes(std::span(text))));
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (fcntl(fd.get(), F_ADD_SEALS, seals) != 0) return fail_errno(errno, "sealing a memfd");
  return fd;
}

Result<std::string> read_text_descriptor(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return fail_errno(errno, "a passed text");
  if (info.st_size < 0 || static_cast<std::uint64_t>(info.st_size) > max_passed_text)
    return fail(ErrorCode::data_loss, "a passed text is too long");
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    ssize_t count = pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(ErrorCode::data_loss, "a passed text is shorter than it was");
    done += static_cast<std::size_t>(count);
  }
  return text;
}

}  // namespace anchorhold::egress
