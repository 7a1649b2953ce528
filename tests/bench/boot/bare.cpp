#include "bare.h"

#include <cstdlib>
#include <fmt/format.h>

#include "base/files.h"
#include "libvirt/domain_xml.h"
#include "libvirt/tsc.h"

namespace anchorhold::bench {

using namespace anchorhold::hypervisor;

double kernel_to_init_ms(const std::string& console) {
  constexpr std::string_view mark = "tiny: up ";
  auto at = console.find(mark);
  return at == std::string::npos ? 0 : std::atof(console.c_str() + at + mark.size()) / 1000;
}

BareMachine start_bare(TestHost& host, ByteSize memory) {
  auto console = host.folder() / "bare.console";
  std::filesystem::remove(console);
  XmlOptions options;
  options.tsc_khz = measure_tsc_khz();
  const std::string command_line = kernel_command_line(host.spec("bare", "stay"), options);
  const auto mib = memory.bytes >> 20;
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
               fmt::format("{}", mib),
               "-smp",
               "1",
               "-object",
               fmt::format("memory-backend-memfd,id=mem,size={}M,share=on", mib),
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
  BareMachine machine{Child::spawn(spec).value()};
  std::string said;
  auto up = [&] {
    said = read_file(console, 1 << 20).value_or("");
    return said.find("after its kernel") != std::string::npos;
  };
  if (!eventually(up)) {
    fmt::print(stderr, "bare QEMU does not come up: {}\n", said);
    std::exit(1);
  }
  machine.up_ms = milliseconds_since(start);
  machine.kernel_to_init_ms = kernel_to_init_ms(said);
  return machine;
}

}  // namespace anchorhold::bench
