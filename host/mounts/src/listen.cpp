#include "listen.h"

#include <cerrno>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace anchorhold::mounts {
namespace {

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    return fail(ErrorCode::invalid_argument, fmt::format("{} is too long for a socket", path.string()));
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

}  // namespace

Result<UniqueFd> listen_at(const std::filesystem::path& path) {
  auto address = ANCHORHOLD_TRY(address_of(path));
  unlink(path.c_str());
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener || bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(listener.get(), 1) != 0)
    return fail_errno(errno, path.string());
  return listener;
}

Result<UniqueFd> connect_to(const std::filesystem::path& path) {
  auto address = ANCHORHOLD_TRY(address_of(path));
  UniqueFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection ||
      connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno(errno, path.string());
  return connection;
}

}  // namespace anchorhold::mounts
