// What this computer lacks for running guests, found by taking the steps of a real start one by one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace anchorhold::hypervisor {

enum class CheckStatus { ok, warn, fail };
std::string_view to_string(CheckStatus status);

struct Check {
  std::string name;  // stable, for programs: "kvm", "qemu", "landlock"
  CheckStatus status = CheckStatus::ok;
  std::string what;  // what was found, one sentence
  std::string fix;   // what to do about it; empty when ok
};

// Where the checks look; the defaults are this computer.
struct DoctorEnvironment {
  std::filesystem::path kvm_device = "/dev/kvm";
  std::filesystem::path proc = "/proc";
  std::filesystem::path emulator;           // empty: qemu-system-x86_64 from PATH
  std::filesystem::path libvirt_driver;     // empty: where Debian keeps libvirt_driver_qemu.so
  std::filesystem::path runtime_directory;  // empty: the person's
  std::filesystem::path cache_directory;
  std::filesystem::path state_directory;
  std::string uri;  // as LibvirtOptions::uri
  ByteSize free_space_wanted = ByteSize::gib(2);
};

// Blocks for up to a few seconds; starts no guest besides the few instructions of the KVM probe.
std::vector<Check> examine(const DoctorEnvironment& environment);

}  // namespace anchorhold::hypervisor
