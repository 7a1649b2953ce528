// Runs in the guest beside the agent: the bare streams that the agent's are measured against. Serves vsock
// ports: 7000 echoes, 7001 reads to the end and answers one byte, 7002 is told a count (8 bytes) and sends as
// many.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <linux/vm_sockets.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

// As the agent's: what is compared is the way, not the size of the pieces.
constexpr std::size_t chunk = 64 << 10;
char buffer[chunk];

bool write_whole(int fd, std::size_t count) {
  for (std::size_t at = 0; at < count;) {
    ssize_t written = write(fd, buffer + at, count - at);
    if (written <= 0) return false;
    at += static_cast<std::size_t>(written);
  }
  return true;
}

void echo(int fd) {
  for (ssize_t got; (got = read(fd, buffer, chunk)) > 0;)
    if (!write_whole(fd, static_cast<std::size_t>(got))) return;
}

void take(int fd) {
  while (read(fd, buffer, chunk) > 0) {
  }
  write_whole(fd, 1);
}

void give(int fd) {
  std::uint64_t count = 0;
  if (read(fd, &count, sizeof count) != sizeof count) return;
  for (; count > 0 && write_whole(fd, std::min<std::uint64_t>(count, chunk));
       count -= std::min<std::uint64_t>(count, chunk)) {
  }
}

int listen_on(std::uint32_t port) {
  int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_ANY;
  address.svm_port = port;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, 8) != 0)
    std::perror("listening");
  return fd;
}

[[noreturn]] void serve(int listener, void (*with)(int)) {
  for (;;) {
    int stream = accept(listener, nullptr, nullptr);
    if (stream < 0) continue;
    with(stream);
    close(stream);
  }
}

}  // namespace

int main() {
  std::signal(SIGPIPE, SIG_IGN);
  int echoes = listen_on(7000), takes = listen_on(7001), gives = listen_on(7002);
  std::puts("ready");
  std::fflush(stdout);
  if (fork() == 0) serve(echoes, echo);
  if (fork() == 0) serve(takes, take);
  serve(gives, give);
}
