#include "machine.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>
#include <x86intrin.h>

namespace anchorhold::vsock::testing {
namespace {

void add(std::string& archive, const std::string& name, unsigned mode, const std::string& data,
         unsigned major = 0, unsigned minor = 0) {
  static unsigned inode = 0;
  archive +=
      fmt::format("070701{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}",
                  ++inode, mode, 0, 0, 1, 0, data.size(), 0, 0, major, minor, name.size() + 1, 0);
  auto align = [&] { archive.resize((archive.size() + 3) / 4 * 4, '\0'); };
  archive += name;
  archive += '\0';
  align();
  archive += data;
  align();
}

}  // namespace

std::string initrd_with_init(const std::filesystem::path& program) {
  std::ifstream file(program, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::string archive;
  add(archive, "dev", 0040755, "");
  add(archive, "dev/console", 0020600, "", 5, 1);
  add(archive, "init", 0100755, bytes);
  add(archive, "TRAILER!!!", 0, "");
  return archive;
}

std::filesystem::path find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    auto candidate = std::filesystem::path(folder) / name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

namespace {

// The rate of the time stamp counter.
std::uint64_t tsc_khz() {
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  auto first = __rdtsc();
  while (Clock::now() - begin < std::chrono::milliseconds(50)) {
  }
  auto ticks = __rdtsc() - first;
  auto nanoseconds = std::chrono::nanoseconds(Clock::now() - begin).count();
  return static_cast<std::uint64_t>(static_cast<double>(ticks) * 1e6 / static_cast<double>(nanoseconds));
}

}  // namespace

std::string kernel_words() {
  return fmt::format(
      "console=ttyS0 quiet panic=-1 reboot=t pci=off tsc=reliable tsc_early_khz={} lapic_timer_khz=1000000 "
      "init_on_alloc=1",
      tsc_khz());
}

std::vector<std::string> machine_arguments(const std::filesystem::path& qemu,
                                           const std::filesystem::path& kernel,
                                           const std::filesystem::path& folder) {
  auto in_folder = [&](const char* name) { return (folder / name).string(); };
  return {qemu.string(),
          "-M",
          "microvm,rtc=on,memory-backend=m",
          "-accel",
          "tcg",
          "-cpu",
          "max",
          "-m",
          "192",
          "-object",
          "memory-backend-memfd,id=m,size=192M,share=on",
          "-nodefaults",
          "-no-user-config",
          "-display",
          "none",
          "-no-reboot",
          "-serial",
          "file:" + in_folder("console"),
          "-kernel",
          kernel.string(),
          "-initrd",
          in_folder("initrd"),
          "-append",
          kernel_words(),
          "-chardev",
          "socket,id=v,path=" + in_folder("v"),
          "-device",
          "vhost-user-vsock-device,chardev=v"};
}

}  // namespace anchorhold::vsock::testing
