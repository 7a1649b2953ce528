#include "libvirt/console_pump.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"

namespace anchorhold::hypervisor {
namespace {

Result<UniqueFd> listen_on(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    return fail(ErrorCode::invalid_argument,
                fmt::format("the console's socket path is too long: {}", path.string()),
                "set XDG_RUNTIME_DIR to a folder with a shorter name");
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(errno, "making the console's socket");
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd.get(), 1) != 0)
    return fail_errno(errno, fmt::format("listening on {}", path.string()));
  return fd;
}

}  // namespace

Result<std::unique_ptr<ConsolePump>> ConsolePump::start(const std::filesystem::path& socket,
                                                        const ConsoleLog& log) {
  BoundedLog file = ANCHORHOLD_TRY(BoundedLog::create(log.path, log.limit));
  UniqueFd listener = ANCHORHOLD_TRY(listen_on(socket));
  Pipe stop = ANCHORHOLD_TRY(make_pipe());
  return std::unique_ptr<ConsolePump>(
      new ConsolePump(socket, std::move(listener), std::move(stop), std::move(file)));
}

ConsolePump::ConsolePump(std::filesystem::path socket, UniqueFd listener, Pipe stop, BoundedLog log)
    : socket_(std::move(socket)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      log_(std::move(log)) {
  thread_ = std::thread([this] { run(); });
}

ConsolePump::~ConsolePump() {
  stop_.write_end.reset();
  thread_.join();
  unlink(socket_.c_str());
}

// Nothing when it is time to stop and nobody is waiting to be accepted.
UniqueFd ConsolePump::accept_one() {
  for (;;) {
    pollfd entries[] = {{listener_.get(), POLLIN, 0}, {stop_.read_end.get(), POLLIN, 0}};
    if (poll(entries, 2, -1) < 0 && errno != EINTR) return {};
    UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection || entries[1].revents != 0) return connection;
  }
}

// Until there is nothing more for now; false at the end of the stream.
bool ConsolePump::copy_available(int connection) {
  std::array<std::byte, 16384> buffer;
  for (;;) {
    ssize_t count = read(connection, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count == 0) return false;
    // A full disk costs the log, never the guest.
    if (auto written = log_.append(std::span(buffer).first(static_cast<std::size_t>(count))); !written)
      log_warning(written.error().message);
  }
}

void ConsolePump::run() {
  UniqueFd connection = accept_one();
  if (!connection) return;
  for (;;) {
    pollfd entries[] = {{connection.get(), POLLIN, 0}, {stop_.read_end.get(), POLLIN, 0}};
    if (poll(entries, 2, -1) < 0 && errno != EINTR) return;
    if (!copy_available(connection.get()) || entries[1].revents != 0) return;
  }
}

std::string last_lines(const std::filesystem::path& log, std::size_t max_lines, std::size_t max_bytes) {
  UniqueFd fd(open(log.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return {};
  off_t size = lseek(fd.get(), 0, SEEK_END);
  off_t start = std::max<off_t>(0, size - static_cast<off_t>(max_bytes));
  std::string raw(static_cast<std::size_t>(std::max<off_t>(0, size - start)), '\0');
  ssize_t got = pread(fd.get(), raw.data(), raw.size(), start);
  raw.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  std::string text;
  for (char c : raw)
    if (c == '\n' || (c >= 0x20 && c < 0x7f)) text += c;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::size_t cut = text.size();
  for (std::size_t lines = 0; lines < max_lines && cut != std::string::npos && cut > 0; ++lines)
    cut = text.rfind('\n', cut - 1);
  return cut == std::string::npos || cut == 0 ? text : text.substr(cut + 1);
}

}  // namespace anchorhold::hypervisor
