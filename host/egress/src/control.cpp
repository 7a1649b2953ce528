#include "egress/control.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/mman.h>
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
  const int descriptor = message.descriptor.get();
  auto sent = send_message_now(socket, std::as_bytes(std::span(bytes)),
                               std::span(&descriptor, descriptor >= 0 ? 1 : 0));
  if (message.type == ControlType::secret) wipe(bytes);
  return sent;
}

Result<std::optional<ControlMessage>> receive_control(int socket) {
  // One byte more than the longest, so that a longer one is seen to be one.
  static thread_local std::vector<char> buffer(control_header_bytes + max_control_payload + 1);
  auto got = ANCHORHOLD_TRY(receive_message_now(socket, std::as_writable_bytes(std::span(buffer))));
  if (!got) return std::nullopt;
  if (got->descriptors.size() > 1) return fail(ErrorCode::data_loss, "a control message that is not ours");
  auto message = parse_control({buffer.data(), got->size});
  if (message && message->type == ControlType::secret) sodium_memzero(buffer.data(), got->size);
  if (!message) return fail(std::move(message).error());
  // A connection that this process has no room for is closed by that; everything else is needed.
  if (got->lost_descriptors && message->type != ControlType::stream)
    return fail(ErrorCode::resource_exhausted, "a control message's descriptor could not be received");
  if (!got->descriptors.empty()) message->descriptor = std::move(got->descriptors[0]);
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
