// A host of its own, for tests that kill hosts or run one inside another machine. Starts one guest, says what
// it got, and stays until the guest ends. Arguments: RUNTIME CACHE KERNEL INITRD CONSOLE WORD
// automatic|hardware|emulation
#include <cstdio>
#include <fstream>
#include <future>
#include <sstream>

#include "hypervisor/libvirt.h"
#include "hypervisor/tiny_guest.h"

namespace {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int give_up(const anchorhold::Error& error) {
  say("error " + error.message + " | " + error.hint);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace anchorhold::hypervisor;
  if (argc != 8) return 2;
  LibvirtOptions options;
  options.runtime_directory = argv[1];
  options.cache_directory = argv[2];
  std::string choice = argv[7];
  options.acceleration = choice == "hardware"    ? AccelerationChoice::hardware
                         : choice == "emulation" ? AccelerationChoice::emulation
                                                 : AccelerationChoice::automatic;
  auto hypervisor = make_libvirt_hypervisor(options);
  if (!hypervisor) return give_up(hypervisor.error());
  const auto& capabilities = (*hypervisor)->capabilities();
  say(std::string("acceleration ") +
      (capabilities.acceleration == Acceleration::hardware ? "hardware" : "emulation") + " " +
      capabilities.why_no_hardware);
  MachineSpec spec;
  spec.id = MachineId("guest");
  spec.kernel = argv[3];
  spec.initrd = argv[4];
  spec.console.path = argv[5];
  spec.kernel_words = {"quiet", std::string("tiny=") + argv[6]};
  spec.vcpus = 1;
  spec.memory = anchorhold::ByteSize::mib(256);
  anchorhold::SerialExecutor executor("owner");
  std::promise<MachineExit> ended;
  std::promise<anchorhold::Status> started;
  auto machine = (*hypervisor)->make(spec, executor, [&](const MachineExit& exit) { ended.set_value(exit); });
  if (!machine) return give_up(machine.error());
  (*machine)->start([&](anchorhold::Status status) { started.set_value(std::move(status)); });
  if (auto status = started.get_future().get(); !status) return give_up(status.error());
  for (int process : qemu_processes(options.runtime_directory)) {
    std::ostringstream line;
    line << std::ifstream("/proc/" + std::to_string(process) + "/cmdline", std::ios::binary).rdbuf();
    // The vector is NUL-separated: "-accel", "kvm".
    bool kvm = line.str().find(std::string("-accel\0kvm", 10)) != std::string::npos;
    say("running " + std::to_string(process) + (kvm ? " kvm" : " tcg"));
  }
  MachineExit exit = ended.get_future().get();
  say("exit " + std::string(to_string(exit.cause)) + " " + exit.detail);
  std::ostringstream console;
  console << std::ifstream(argv[5]).rdbuf();
  say(console.str());
  return 0;
}
