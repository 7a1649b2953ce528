// bench_boot [ROUNDS]: medians, in milliseconds, of a guest with a static init: create, up to its init, end;
// and of bare QEMU with the same kernel, init and devices. ANCHORHOLD_TEST_IMAGE names the image with the
// kernel.
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <signal.h>

#include "base/files.h"
#include "base/process.h"
#include "hypervisor/tiny_guest.h"
#include "libvirt/domain_xml.h"
#include "libvirt/tsc.h"

namespace {

using namespace anchorhold;
using namespace anchorhold::hypervisor;
using Steady = std::chrono::steady_clock;

double since(Steady::time_point start) {
  return std::chrono::duration<double, std::milli>(Steady::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Figures {
  std::vector<double> create, up, end;
};

void through_hypervisor(TestHost& host, int round, Figures& figures) {
  Guest guest(host, host.spec("bench-" + std::to_string(round), "stay"));
  auto start = Steady::now();
  if (auto started = guest.start(); !started) {
    fmt::print(stderr, "{}\n", started.error().message);
    std::exit(1);
  }
  figures.create.push_back(since(start));
  guest.wait_for_console("tiny: up");
  figures.up.push_back(since(start));
  auto end = Steady::now();
  (void)guest.stop();
  figures.end.push_back(since(end));
}

void by_hand(TestHost& host, Figures& figures) {
  auto console = host.folder() / "bare.console";
  XmlOptions options;
  options.tsc_khz = measure_tsc_khz();
  const std::string command_line = kernel_command_line(host.spec("bare", "stay"), options);
  SpawnSpec spec;
  spec.argv = {"/usr/bin/qemu-system-x86_64",
               "-nodefaults",
               "-no-user-config",
               "-display",
               "none",
               "-M",
               "microvm,acpi=on,rtc=on,memory-backend=mem",
               "-accel",
               "tcg",
               "-cpu",
               "max",
               "-m",
               "256",
               "-smp",
               "1",
               "-object",
               "memory-backend-memfd,id=mem,size=256M,share=on",
               "-device",
               "virtio-balloon-device",
               "-device",
               "virtio-rng-device",
               "-kernel",
               test_kernel().string(),
               "-initrd",
               (host.folder() / "initrd").string(),
               "-append",
               command_line,
               "-serial",
               "file:" + console.string(),
               "-no-reboot"};
  auto start = Steady::now();
  Child child = Child::spawn(spec).value();
  eventually([&] { return read_file(console, 1 << 20).value_or("").find("tiny: up") != std::string::npos; });
  figures.up.push_back(since(start));
  auto end = Steady::now();
  child.kill(SIGKILL);
  child.wait();
  figures.end.push_back(since(end));
  std::filesystem::remove(console);
}

}  // namespace

int main(int argc, char** argv) {
  if (test_kernel().empty()) {
    fmt::print(stderr, "ANCHORHOLD_TEST_IMAGE names no image\n");
    return 1;
  }
  int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  TestHost host;
  auto opening = Steady::now();
  host.hypervisor();
  double opened = since(opening);
  Figures ours, bare;
  for (int round = 0; round < rounds; ++round) {
    through_hypervisor(host, round, ours);
    by_hand(host, bare);
  }
  fmt::print("{}\nopen            {:8.0f} ms\n", host.hypervisor().capabilities().backend, opened);
  fmt::print("libvirt create  {:8.0f} ms\nlibvirt to init {:8.0f} ms\nlibvirt end     {:8.0f} ms\n",
             median(ours.create), median(ours.up), median(ours.end));
  fmt::print("bare to init    {:8.0f} ms\nbare end        {:8.0f} ms\n", median(bare.up), median(bare.end));
  fmt::print("to init, ratio  {:8.2f}\n", median(ours.up) / median(bare.up));
  return 0;
}
