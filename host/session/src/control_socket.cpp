#include "control_socket.h"

#include <cerrno>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"
#include "base/paths.h"

namespace anchorhold::session {
namespace {

constexpr int backlog = 16;

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    return fail(ErrorCode::invalid_argument, fmt::format("{} is too long for a socket", path.string()),
                "set XDG_RUNTIME_DIR to a folder with a shorter name");
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

void remove_leavings(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with('.')) continue;  // being made just now
    auto connected = connect_to_control(entry.path());
    if (!connected && connected.error().code == ErrorCode::failed_precondition) unlink(entry.path().c_str());
  }
}

}  // namespace

Result<std::filesystem::path> control_folder() {
  auto folder = ANCHORHOLD_TRY(runtime_directory()) / "sessions";
  ANCHORHOLD_CHECK(make_directories(folder, 0700));
  return folder;
}

std::filesystem::path control_socket(const std::filesystem::path& folder, const SessionId& session) {
  return folder / session.value();
}

Result<UniqueFd> connect_to_control(const std::filesystem::path& path) {
  auto address = ANCHORHOLD_TRY(address_of(path));
  UniqueFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection) return fail_errno(errno, "socket");
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return connection;
  if (errno == ENOENT || errno == ECONNREFUSED)
    return fail(ErrorCode::failed_precondition, "nobody serves it");
  return fail_errno(errno, path.string());
}

Result<UniqueFd> listen_for_control(const std::filesystem::path& path) {
  remove_leavings(path.parent_path());
  const auto making = path.parent_path() / ("." + path.filename().string());
  auto address = ANCHORHOLD_TRY(address_of(making));
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return fail_errno(errno, "socket");
  unlink(making.c_str());
  if (fchmod(listener.get(), 0600) != 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), backlog) != 0 || rename(making.c_str(), path.c_str()) != 0)
    return fail_errno(errno, path.string());
  return listener;
}

bool is_own_user(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

}  // namespace anchorhold::session
