// bench_boot [ROUNDS]: medians, in milliseconds, of the steps of a start: a real guest from the check of its
// image to the first byte of a command; a machine with a static init through the hypervisor; and bare QEMU
// with the same kernel, init and devices, alternating in one run. ANCHORHOLD_TEST_IMAGE names the image.
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <signal.h>
#include <stdexcept>
#include <vector>

#include "bare.h"
#include "guest_harness.h"

namespace {

using namespace anchorhold;
using namespace anchorhold::hypervisor;
using bench::Steady;

// In the order of their first figures.
class Figures {
 public:
  void add(const std::string& name, double milliseconds) {
    if (!all_.contains(name)) order_.push_back(name);
    all_[name].push_back(milliseconds);
  }
  double median(const std::string& name) const {
    auto values = all_.at(name);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
  void print(std::string_view title) const {
    fmt::print("{}\n", title);
    for (const auto& name : order_) fmt::print("  {:<36} {:8.0f} ms\n", name, median(name));
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::vector<double>> all_;
};

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

double as_ms(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// Root's view of the kernel's log: "[    0.412345] Run /init as init process".
double kernel_to_init_ms(session::GuestClient& client) {
  std::string log;
  session::ExecSpec spec;
  spec.argv = {"dmesg"};
  spec.user = "root";
  must(client.run(spec, {[&](std::string_view text) { log += text; }, {}}));
  auto at = log.find("Run /init as init process");
  auto bracket = log.rfind('[', at);
  if (at == std::string::npos || bracket == std::string::npos)
    throw std::runtime_error("the kernel's log does not say when init was run");
  return std::atof(log.c_str() + bracket + 1) * 1000;
}

// The guest's steps follow each other without a gap, so each one's moment is known from the end of the start.
void real_guest(TestHost& host, Figures& figures) {
  anchorhold::testing::RealGuestOptions options;
  options.cpus = 1;
  options.hypervisor = host.options();
  auto guest = must(anchorhold::testing::RealGuest::boot(std::move(options)));
  const auto ready = Steady::now();
  session::ExecSpec spec;
  spec.argv = {"/bin/echo", "x"};
  auto exec = must(guest->client().start(spec));
  if (!must(exec->read(session::OutputStream::standard_output)))
    throw std::runtime_error("a command said nothing");
  const double first_byte = bench::milliseconds_since(ready);
  must(exec->wait());

  const auto asked = Steady::now();
  const auto statistics = must(guest->client().statistics());
  const auto kernel_began = asked + (Steady::now() - asked) / 2 - statistics.uptime;
  std::map<session::Stage, double> took;
  double whole = first_byte;
  for (const auto& [stage, time] : guest->guest().stages()) {
    took[stage] = as_ms(time);
    whole += took[stage];
  }
  using enum session::Stage;
  // Moments in milliseconds before the guest was ready.
  const double agent_called = took[hello] + took[clock] + took[mounts];
  const double machine_began = agent_called + took[boot] + took[machine];
  const double kernel_was = as_ms(ready - kernel_began);
  const double to_init = kernel_to_init_ms(guest->client());
  figures.add("image checked", took[image]);
  figures.add("devices listen", took[devices]);
  figures.add("libvirt create, to its kernel", machine_began - kernel_was);
  figures.add("kernel to init", to_init);
  figures.add("init to the agent's call", kernel_was - to_init - agent_called);
  figures.add("hello, clock, mounts", agent_called);
  figures.add("first byte of a command", first_byte);
  figures.add("all", whole);
  figures.add("of it, create to hello", machine_began - took[clock] - took[mounts]);
}

void through_hypervisor(TestHost& host, int round, Figures& figures) {
  Guest guest(host, host.spec("bench-" + std::to_string(round), "stay"));
  auto start = Steady::now();
  must(guest.start());
  figures.add("libvirt create", bench::milliseconds_since(start));
  guest.wait_for_console("after its kernel");
  const double up = bench::milliseconds_since(start);
  figures.add("of it, kernel to init", bench::kernel_to_init_ms(guest.console()));
  figures.add("to init", up);
  auto end = Steady::now();
  (void)guest.stop();
  figures.add("end", bench::milliseconds_since(end));
}

void by_hand(TestHost& host, Figures& figures) {
  auto machine = bench::start_bare(host, ByteSize::mib(256));
  figures.add("of it, kernel to init", machine.kernel_to_init_ms);
  figures.add("to init", machine.up_ms);
  auto end = Steady::now();
  machine.child.kill(SIGKILL);
  machine.child.wait();
  figures.add("end", bench::milliseconds_since(end));
}

}  // namespace

int main(int argc, char** argv) try {
  if (auto why = anchorhold::testing::RealGuest::why_not(); !why.empty()) throw std::runtime_error(why);
  int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  TestHost host;
  auto opening = Steady::now();
  host.hypervisor();
  fmt::print("{}, opened in {:.0f} ms\n", host.hypervisor().capabilities().backend,
             bench::milliseconds_since(opening));
  Figures real, ours, bare;
  for (int round = 0; round < rounds; ++round) {
    real_guest(host, real);
    through_hypervisor(host, round, ours);
    by_hand(host, bare);
  }
  real.print("a real guest");
  ours.print("a static init, through the hypervisor");
  bare.print("a static init, bare QEMU");
  const double peer = bare.median("to init");
  fmt::print("ratios to bare QEMU's {:.0f} ms to init\n", peer);
  fmt::print("  static init through the hypervisor   {:8.2f}\n", ours.median("to init") / peer);
  fmt::print("  real guest, create to hello          {:8.2f}\n",
             real.median("of it, create to hello") / peer);
  fmt::print("  real guest, all to the first byte    {:8.2f}\n", real.median("all") / peer);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_boot: {}\n", error.what());
  return 1;
}
