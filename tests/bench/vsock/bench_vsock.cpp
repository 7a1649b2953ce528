// Stream throughput both ways and the echo round trip over the vsock device: a socket pair of this machine as
// the peer, the device driven by a front end in this process, and a real guest when ANCHORHOLD_TEST_IMAGE
// names an image. The guest's figures are the raw baseline for whatever is built on these streams.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <stdexcept>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/files.h"
#include "base/process.h"
#include "base/seal.h"
#include "front_end.h"
#include "machine.h"
#include "test_image.h"
#include "vsock/device.h"

using namespace anchorhold;
using namespace anchorhold::vsock;
using namespace anchorhold::vsock::testing;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t bulk = 512u << 20;
constexpr std::size_t chunk = 256u << 10;
constexpr int round_trips = 2000;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Figures {
  double to_guest = 0, from_guest = 0;  // MiB/s
  double echo_median = 0, echo_99 = 0;  // µs
};

void print(const char* what, const Figures& f) {
  std::printf("%-28s to %7.0f MiB/s   from %7.0f MiB/s   echo median %7.1f us  99%% %7.1f us\n", what,
              f.to_guest, f.from_guest, f.echo_median, f.echo_99);
}

void percentiles(std::vector<double>& times, Figures& figures) {
  std::sort(times.begin(), times.end());
  figures.echo_median = times[times.size() / 2];
  figures.echo_99 = times[times.size() * 99 / 100];
}

void must(bool held, const char* what) {
  if (!held) throw std::runtime_error(what);
}

void send_bulk(int fd, std::size_t total) {
  std::vector<std::byte> block(chunk, std::byte{'b'});
  for (std::size_t at = 0; at < total; at += chunk) must(bool(write_all(fd, block)), "writing");
}

std::size_t drain(int fd) {
  std::vector<std::byte> block(chunk);
  std::size_t total = 0;
  for (ssize_t got; (got = read(fd, block.data(), block.size())) > 0;) total += static_cast<std::size_t>(got);
  return total;
}

void echo_round_trips(int fd, Figures& figures) {
  std::vector<double> times;
  std::byte message[64] = {};
  for (int i = 0; i < round_trips; ++i) {
    auto begin = Clock::now();
    must(bool(write_all(fd, message)), "writing");
    auto got = read_full(fd, message);
    must(got && *got == sizeof message, "reading");
    times.push_back(seconds_since(begin) * 1e6);
  }
  percentiles(times, figures);
}

Figures socket_pair_figures() {
  Figures figures;
  auto pair = *socket_pair(SOCK_STREAM);
  auto begin = Clock::now();
  std::thread writer([&] {
    send_bulk(pair.first.get(), bulk);
    ::shutdown(pair.first.get(), SHUT_WR);
  });
  must(drain(pair.second.get()) == bulk, "bulk");
  writer.join();
  figures.to_guest = figures.from_guest = bulk / seconds_since(begin) / (1 << 20);
  auto other = *socket_pair(SOCK_STREAM);
  std::thread echo([&] {
    std::byte message[64];
    for (ssize_t got; (got = read(other.second.get(), message, sizeof message)) > 0;)
      (void)!write(other.second.get(), message, static_cast<std::size_t>(got));
  });
  echo_round_trips(other.first.get(), figures);
  other.first.reset();
  echo.join();
  return figures;
}

std::unique_ptr<VsockDevice> start(const std::filesystem::path& socket) {
  VsockDeviceSpec spec;
  spec.socket_path = socket;
  spec.program = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "anchorhold-vsockd";
  spec.allow_weak = landlock_abi() == 0;
  auto device = VsockDevice::start(spec);
  if (!device) throw std::runtime_error(device.error().message);
  return std::move(*device);
}

Figures front_end_figures() {
  Figures figures;
  auto folder = *TemporaryDirectory::create();
  auto device = start(folder.path() / "v");
  std::promise<UniqueFd> accepted;
  must(bool(device->listen(2048, [&](UniqueFd stream) { accepted.set_value(std::move(stream)); })),
       "listening");
  FrontEnd front_end((folder.path() / "v").string());
  front_end.negotiate();
  GuestDriver driver(front_end);
  GuestStream guest{driver, 50000, 2048};
  guest.say(1);
  must(guest.pump([&] { return guest.established; }), "connecting");
  UniqueFd host = accepted.get_future().get();

  auto begin = Clock::now();
  std::thread writer([&] { send_bulk(host.get(), bulk); });
  std::size_t got = 0;
  must(guest.pump(
           [&] {
             got += guest.data.size();
             guest.data.clear();
             return got == bulk;
           },
           std::chrono::minutes(2)),
       "bulk to the guest");
  writer.join();
  figures.to_guest = bulk / seconds_since(begin) / (1 << 20);

  std::vector<double> times;
  std::thread echo([&] {
    std::byte message[64];
    for (int i = 0; i < round_trips; ++i) {
      auto count = read_full(host.get(), message);
      if (!count || *count != sizeof message || !write_all(host.get(), message)) return;
    }
  });
  std::byte message[64] = {};
  for (int i = 0; i < round_trips; ++i) {
    auto start_time = Clock::now();
    guest.write(message);
    must(guest.pump([&] { return guest.data.size() == sizeof message; }), "echo");
    guest.data.clear();
    times.push_back(seconds_since(start_time) * 1e6);
  }
  echo.join();
  percentiles(times, figures);

  begin = Clock::now();
  std::thread reader([&] { got = drain(host.get()); });
  std::vector<std::byte> block(GuestDriver::payload_limit);
  for (std::size_t sent = 0; sent < bulk;) {
    std::size_t count =
        guest.write(std::span<const std::byte>(block).first(std::min(block.size(), bulk - sent)));
    sent += count;
    if (count == 0) must(guest.pump([&] { return guest.credit() > 0; }), "credit");
  }
  guest.say(4, 3);
  reader.join();
  must(got == bulk, "bulk from the guest");
  figures.from_guest = bulk / seconds_since(begin) / (1 << 20);
  return figures;
}

Figures guest_figures(const std::filesystem::path& kernel, const std::filesystem::path& qemu) {
  Figures figures;
  auto folder = *TemporaryDirectory::create();
  std::ofstream(folder.path() / "initrd", std::ios::binary) << initrd_with_init(ANCHORHOLD_GUEST_INIT);
  auto device = start(folder.path() / "v");
  std::promise<UniqueFd> ready;
  must(bool(device->listen(2048, [&](UniqueFd stream) { ready.set_value(std::move(stream)); })), "listening");
  SpawnSpec spec;
  spec.argv = machine_arguments(qemu, kernel, folder.path());
  auto machine = Child::spawn(spec);
  must(bool(machine), "starting QEMU");
  auto agent = ready.get_future();
  must(agent.wait_for(std::chrono::minutes(2)) == std::future_status::ready, "the guest did not boot");
  UniqueFd agent_stream = agent.get();
  auto dial = [&](std::uint32_t port) {
    auto stream = device->dial(port, std::chrono::minutes(1));
    if (!stream) throw std::runtime_error(stream.error().message);
    return std::move(*stream);
  };
  auto sink = dial(6001);
  auto begin = Clock::now();
  send_bulk(sink.get(), bulk);
  ::shutdown(sink.get(), SHUT_WR);
  must(drain(sink.get()) == 16, "bulk to the guest");
  figures.to_guest = bulk / seconds_since(begin) / (1 << 20);
  auto source = dial(6002);
  begin = Clock::now();
  std::uint64_t count = bulk;
  must(bool(write_all(source.get(), std::as_bytes(std::span(&count, 1)))), "asking");
  must(drain(source.get()) == bulk, "bulk from the guest");
  figures.from_guest = bulk / seconds_since(begin) / (1 << 20);
  auto echo = dial(6000);
  echo_round_trips(echo.get(), figures);
  return figures;
}

}  // namespace

int main() try {
  print("socket pair", socket_pair_figures());
  print("device, front end here", front_end_figures());
  const auto& image = anchorhold::testing::test_image();
  auto qemu = find_program("qemu-system-x86_64");
  if (image && !qemu.empty()) {
    print("device, real guest (TCG)", guest_figures(image->kernel, qemu));
  } else {
    std::printf("no guest: ANCHORHOLD_TEST_IMAGE names no image, or QEMU is not installed\n");
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_vsock: %s\n", error.what());
  return 1;
}
