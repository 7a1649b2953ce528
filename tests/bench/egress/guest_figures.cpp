#include "guest_figures.h"

#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <future>
#include <list>
#include <thread>

#include "base/files.h"
#include "base/process.h"
#include "base/seal.h"
#include "guest_measure.h"
#include "machine.h"
#include "site.h"
#include "test_image.h"
#include "vsock/device.h"
#include "vsock/ports.h"

namespace anchorhold::testing {
namespace {

using vsock::testing::Measure;
constexpr std::uint32_t ready_port = 2048, raw_port = 2050, measuring_port = 6003;
constexpr std::uint64_t round_trips = 3000, bulk_bytes = 128u << 20;

// Seconds of the guest's clock; nothing when the guest could not.
double measured(vsock::VsockDevice& device, const Measure& what, const std::string& request) {
  auto stream = device.dial(measuring_port, std::chrono::minutes(1));
  std::uint64_t nanoseconds = 0;
  if (!stream || !write_all(stream->get(), std::as_bytes(std::span(&what, 1))) ||
      !write_all(stream->get(), std::as_bytes(std::span(request))))
    return 0;
  auto got = read_full(stream->get(), std::as_writable_bytes(std::span(&nanoseconds, 1)));
  return got && *got == sizeof nanoseconds ? static_cast<double>(nanoseconds) / 1e9 : 0;
}

void print(vsock::VsockDevice& device, const char* name, std::uint32_t port, const std::string& request) {
  Measure what;
  what.port = port;
  what.request_bytes = static_cast<std::uint32_t>(request.size());
  auto seconds = [&](Measure::Kind kind, std::uint64_t count) {
    what.kind = kind;
    what.count = count;
    return measured(device, what, request);
  };
  const double trips = seconds(Measure::round_trips, round_trips);
  const double down = seconds(Measure::down, bulk_bytes), up = seconds(Measure::up, bulk_bytes);
  if (trips <= 0 || down <= 0 || up <= 0) {
    std::printf("from a guest, %-14s  could not be measured\n", name);
    return;
  }
  const double mib = static_cast<double>(bulk_bytes >> 20);
  std::printf("from a guest, %-14s  round trip %.0f us  down %.0f MiB/s  up %.0f MiB/s\n", name,
              trips * 1e6 / static_cast<double>(round_trips), mib / down, mib / up);
}

}  // namespace

void print_guest_figures(egress::Door& door, const std::string& destination,
                         const std::function<void(Wire&)>& serve) {
  const auto& image = test_image();
  const auto qemu = vsock::testing::find_program("qemu-system-x86_64");
  if (!image || qemu.empty()) {
    std::printf("from a guest: %s\n", image ? "qemu-system-x86_64 is not installed" : no_test_image);
    return;
  }
  auto folder = *TemporaryDirectory::create();
  std::ofstream(folder.path() / "initrd", std::ios::binary)
      << vsock::testing::initrd_with_init(ANCHORHOLD_GUEST_INIT);
  vsock::VsockDeviceSpec spec;
  spec.socket_path = folder.path() / "v";
  spec.program = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "anchorhold-vsockd";
  spec.allow_weak = landlock_abi() == 0;
  auto device = vsock::VsockDevice::start(spec);
  std::promise<UniqueFd> agent;
  std::list<std::jthread> serving;
  if (!device ||
      !(*device)->listen(ready_port, [&](UniqueFd stream) { agent.set_value(std::move(stream)); }) ||
      !(*device)->listen(vsock::host_port::egress,
                         [&](UniqueFd stream) { (void)door.adopt(std::move(stream)); }) ||
      !(*device)->listen(raw_port, [&](UniqueFd stream) {
        serving.emplace_back([&serve, wire = std::make_shared<Wire>(std::move(stream))] { serve(*wire); });
      })) {
    std::printf("from a guest: the vsock device did not start\n");
    return;
  }
  SpawnSpec spawn;
  spawn.argv = vsock::testing::machine_arguments(qemu, image->kernel, folder.path());
  auto machine = Child::spawn(spawn);
  auto ready = agent.get_future();
  if (!machine || ready.wait_for(std::chrono::minutes(2)) != std::future_status::ready) {
    std::printf("from a guest: it did not boot\n");
    return;
  }
  UniqueFd alive = ready.get();
  print(**device, "raw stream", raw_port, "");
  print(**device, "tunnelled", vsock::host_port::egress,
        fmt::format("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", destination, destination));
  device->reset();
}

}  // namespace anchorhold::testing
