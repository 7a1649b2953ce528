// Hardware or emulation: what the person chose, what libvirt believes, and what the probe has shown.
#pragma once

#include <string>

#include "base/error.h"
#include "hypervisor/libvirt.h"
#include "libvirt/driver.h"
#include "libvirt/kvm_probe.h"

namespace anchorhold::hypervisor {

struct AccelerationDecision {
  Acceleration acceleration = Acceleration::emulation;
  std::string why_no_hardware;  // empty with hardware, and when emulation was chosen by the person
};

// What a verdict means to a person: a sentence, and what to do about it.
std::string explain(const KvmVerdict& verdict, const std::filesystem::path& device);
std::string fix_for(const KvmVerdict& verdict, const std::filesystem::path& device);

// The pure part. `libvirt_knows_kvm` is asked for once the verdict allows it.
Result<AccelerationDecision> decide(AccelerationChoice choice, const KvmVerdict& verdict,
                                    bool libvirt_knows_kvm, const std::filesystem::path& device);
Result<AccelerationDecision> decide_acceleration(Driver& driver, const std::filesystem::path& emulator,
                                                 const LibvirtOptions& options);

}  // namespace anchorhold::hypervisor
