// Does /dev/kvm really run our guests? A file that opens says little: where virtualization is itself
// emulated, a machine can be made and then stops at its first unusual instruction. So a few instructions of
// what every 64-bit kernel uses are run, and the answer is checked.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace anchorhold::hypervisor {

struct KvmVerdict {
  enum class Outcome {
    works,
    absent,         // no such device
    no_permission,  // the device is there and this user may not open it
    broken,         // it opens, and a guest does not run on it
  };
  Outcome outcome = Outcome::absent;
  std::string detail;  // one sentence without a full stop; empty when it works
};

// Runs in a child process that is killed after the limit, so that a broken device cannot hang the caller. Any
// thread.
KvmVerdict probe_kvm(const std::filesystem::path& device,
                     std::chrono::milliseconds limit = std::chrono::seconds(5));

}  // namespace anchorhold::hypervisor
