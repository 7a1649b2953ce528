#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "vhost_user_protocol.h"
#include "vsock/vhost_user.h"

namespace anchorhold::vsock {

Result<UniqueFd> listen_for_front_end(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(ErrorCode::invalid_argument,
                fmt::format("the socket path {} is longer than {} bytes", path, sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "socket");
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    return fail_errno(errno, fmt::format("replacing {}", path));
  // The mode is that of the socket's inode at bind (unix(7)): never a moment in which others may connect.
  if (fchmod(socket.get(), 0600) != 0) return fail_errno(errno, "fchmod on a socket");
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno(errno, fmt::format("binding {}", path));
  if (listen(socket.get(), 1) != 0) return fail_errno(errno, fmt::format("listening on {}", path));
  return socket;
}

namespace vhost_user {

tl::unexpected<Error> malformed(std::string what) {
  return fail(ErrorCode::invalid_argument, "the front end's message: " + what);
}

void MessageReader::clear() {
  bytes_.clear();
  descriptors_.clear();
}

Header MessageReader::header() const {
  Header header{};
  std::memcpy(&header, bytes_.data(), std::min(bytes_.size(), sizeof header));
  return header;
}

Result<MessageReader::Got> MessageReader::receive(int socket) {
  const std::size_t have = bytes_.size();
  const std::size_t want = sizeof(Header) + (have >= sizeof(Header) ? header().size : 0);
  bytes_.resize(want);
  auto received = receive_with_descriptors(socket, std::span(bytes_).subspan(have));
  // Reset: it went without reading our last answer, as a virtual machine that is ended hard does.
  if (!received && received.error().code == ErrorCode::unavailable) return Got::end;
  if (!received) return fail(with_context(std::move(received).error(), "the front end's connection"));
  bytes_.resize(have + received->size);
  for (auto& fd : received->descriptors) descriptors_.push_back(std::move(fd));
  if (descriptors_.size() > max_memory_regions) return malformed("too many descriptors");
  if (received->size == 0) {
    if (have > 0) return malformed("it ends in the middle");
    return Got::end;
  }
  if (bytes_.size() < sizeof(Header)) return Got::part;
  const Header header = this->header();
  if ((header.flags & flag_version_mask) != version || (header.flags & flag_reply))
    return malformed(fmt::format("flags {:#x}", header.flags));
  if (header.size > max_payload) return malformed(fmt::format("a payload of {} bytes", header.size));
  return bytes_.size() == sizeof header + header.size ? Got::whole : Got::part;
}

std::vector<std::byte> encode(Request request, std::uint32_t flags, std::span<const std::byte> payload) {
  Header header{request, flags, static_cast<std::uint32_t>(payload.size())};
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof header);
  return bytes;
}

std::string name(Request request) {
  switch (request) {
    case get_features:
      return "GET_FEATURES";
    case set_features:
      return "SET_FEATURES";
    case set_owner:
      return "SET_OWNER";
    case set_mem_table:
      return "SET_MEM_TABLE";
    case set_vring_num:
      return "SET_VRING_NUM";
    case set_vring_addr:
      return "SET_VRING_ADDR";
    case set_vring_base:
      return "SET_VRING_BASE";
    case get_vring_base:
      return "GET_VRING_BASE";
    case set_vring_kick:
      return "SET_VRING_KICK";
    case set_vring_call:
      return "SET_VRING_CALL";
    case set_vring_err:
      return "SET_VRING_ERR";
    case get_protocol_features:
      return "GET_PROTOCOL_FEATURES";
    case set_protocol_features:
      return "SET_PROTOCOL_FEATURES";
    case get_queue_num:
      return "GET_QUEUE_NUM";
    case set_vring_enable:
      return "SET_VRING_ENABLE";
    case get_config:
      return "GET_CONFIG";
  }
  return fmt::format("request {}", static_cast<std::uint32_t>(request));
}

}  // namespace vhost_user
}  // namespace anchorhold::vsock
