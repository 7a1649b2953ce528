// The whole user space of the guest that the vsock tests boot: static, PID 1. It serves three ports and dials
// the host, so that every direction and every way of closing is seen with a real driver.
//   6000 echoes; 6001 reads to the end and answers with count and hash; 6002 is told a count and sends so
//   many bytes; 6003 measures a port of the host, as guest_measure.h says.
// Dialled: host port 2048, told "ready <errno of dialling the closed port 2049>"; what arrives there ends the
// guest.
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <linux/vm_sockets.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "guest_measure.h"

namespace {

using anchorhold::vsock::testing::Measure;

constexpr std::size_t chunk = 256 << 10;

int dial(std::uint32_t port) {
  int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_HOST;
  address.svm_port = port;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  int error = errno;
  close(fd);
  return -error;
}

bool write_whole(int fd, const char* bytes, std::size_t count) {
  while (count > 0) {
    ssize_t written = write(fd, bytes, count);
    if (written <= 0) return false;
    bytes += written;
    count -= static_cast<std::size_t>(written);
  }
  return true;
}

void echo(int fd) {
  static char buffer[chunk];
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;)
    if (!write_whole(fd, buffer, static_cast<std::size_t>(got))) return;
}

// Eight bytes a step: under emulation, byte by byte would be all the test measures. `index` counts whole
// words.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 1099511628211ull;
}

void digest(int fd) {
  static char buffer[chunk];
  std::uint64_t answer[2] = {0, 14695981039346656037ull};
  std::size_t held = 0;
  for (ssize_t got; (got = read(fd, buffer + held, sizeof buffer - held)) > 0;) {
    answer[0] += static_cast<std::uint64_t>(got);
    std::size_t have = held + static_cast<std::size_t>(got), at = 0;
    for (; at + 8 <= have; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, buffer + at, 8);
      answer[1] = mix(answer[1], word);
    }
    held = have - at;
    std::memmove(buffer, buffer + at, held);
  }
  write_whole(fd, reinterpret_cast<const char*>(answer), sizeof answer);
}

void produce(int fd) {
  static char buffer[chunk];
  std::uint64_t count = 0, value = 0;
  if (read(fd, &count, sizeof count) != sizeof count) return;
  while (count > 0) {
    for (std::size_t at = 0; at < sizeof buffer; at += 8, ++value) std::memcpy(buffer + at, &value, 8);
    std::size_t part = count < sizeof buffer ? static_cast<std::size_t>(count) : sizeof buffer;
    if (!write_whole(fd, buffer, part)) return;
    count -= part;
  }
}

bool read_whole(int fd, void* bytes, std::size_t count) {
  for (auto* at = static_cast<char*>(bytes); count > 0;) {
    ssize_t got = read(fd, at, count);
    if (got <= 0) return false;
    at += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

bool measured(int far, const Measure& what) {
  static char buffer[chunk];
  char answer[4];
  std::uint64_t left = what.count;
  switch (what.kind) {
    case Measure::round_trips:
      for (; left > 0; --left)
        if (!write_whole(far, "p", 1) || !read_whole(far, answer, 4)) return false;
      return true;
    case Measure::down:
      if (!write_whole(far, "s", 1)) return false;
      while (left > 0) {
        ssize_t got = read(far, buffer, left < sizeof buffer ? left : sizeof buffer);
        if (got <= 0) return false;
        left -= static_cast<std::uint64_t>(got);
      }
      return true;
    case Measure::up:
      if (!write_whole(far, "k", 1)) return false;
      for (; left > 0; left -= left < sizeof buffer ? left : sizeof buffer)
        if (!write_whole(far, buffer, left < sizeof buffer ? left : sizeof buffer)) return false;
      shutdown(far, SHUT_WR);
      return read_whole(far, answer, 4);
  }
  return false;
}

void measure(int fd) {
  Measure what;
  char text[512];
  if (!read_whole(fd, &what, sizeof what) || what.request_bytes > sizeof text ||
      !read_whole(fd, text, what.request_bytes))
    return;
  int far = dial(what.port);
  if (far < 0 || !write_whole(far, text, what.request_bytes)) return;
  for (int ends = 0; what.request_bytes > 0 && ends < 4;) {
    char byte;
    if (read(far, &byte, 1) != 1) return;
    ends = byte == (ends % 2 == 0 ? '\r' : '\n') ? ends + 1 : byte == '\r' ? 1 : 0;
  }
  timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  if (!measured(far, what)) return;
  clock_gettime(CLOCK_MONOTONIC, &end);
  std::uint64_t nanoseconds =
      static_cast<std::uint64_t>((end.tv_sec - begin.tv_sec) * 1'000'000'000 + (end.tv_nsec - begin.tv_nsec));
  write_whole(fd, reinterpret_cast<const char*>(&nanoseconds), sizeof nanoseconds);
}

void serve(std::uint32_t port, void (*with)(int)) {
  int listener = socket(AF_VSOCK, SOCK_STREAM, 0);
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_ANY;
  address.svm_port = port;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, 128) != 0) {
    std::perror("listening");
    return;
  }
  if (fork() != 0) return;
  for (;;) {
    int stream = accept(listener, nullptr, nullptr);
    if (stream < 0) continue;
    if (fork() == 0) {
      close(listener);
      with(stream);
      _exit(0);
    }
    close(stream);
  }
}

}  // namespace

int main() {
  std::signal(SIGCHLD, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  serve(6000, echo);
  serve(6001, digest);
  serve(6002, produce);
  serve(6003, measure);
  int closed_port = dial(2049);
  int host = dial(2048);
  if (host >= 0) {
    char text[64];
    int length = std::snprintf(text, sizeof text, "ready %d\n", closed_port < 0 ? -closed_port : 0);
    write_whole(host, text, static_cast<std::size_t>(length));
    char end;
    (void)!read(host, &end, 1);
  } else {
    std::fprintf(stderr, "dialling the host: %s\n", std::strerror(-host));
  }
  reboot(RB_AUTOBOOT);
  for (;;) pause();
}
