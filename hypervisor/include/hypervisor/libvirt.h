// The backend for Linux: QEMU through libvirt, by default embedded in this process with no daemon.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "hypervisor/hypervisor.h"

namespace anchorhold::hypervisor {

enum class AccelerationChoice { automatic, hardware, emulation };

struct LibvirtOptions {
  // Empty: qemu:///embed with a folder of this process. Also qemu:///session and qemu:///system, which need a
  // daemon. A process has at most one embedded driver, from the first opening to its end: every Hypervisor
  // opened with an empty URI shares it, with the folders named first.
  std::string uri;
  // automatic takes the hardware when a guest really runs on it; hardware is an error when it doesn't.
  AccelerationChoice acceleration = AccelerationChoice::automatic;
  std::filesystem::path emulator;  // empty: qemu-system-x86_64 from PATH
  std::filesystem::path kvm_device = "/dev/kvm";
  std::filesystem::path runtime_directory;  // empty: anchorhold::runtime_directory()
  std::filesystem::path cache_directory;    // empty: anchorhold::cache_directory()
};

// Blocks for up to a few seconds (libvirt asks QEMU what it can do, once per version): call it on a worker.
// Sweeps what dead hosts left behind. Starts the reaper, which ends the guests when this process is gone.
Result<std::unique_ptr<Hypervisor>> make_libvirt_hypervisor(const LibvirtOptions& options);

}  // namespace anchorhold::hypervisor
