#include "libvirt/acceleration.h"

#include <cstdlib>
#include <fmt/format.h>
#include <memory>

namespace anchorhold::hypervisor {

std::string explain(const KvmVerdict& verdict, const std::filesystem::path& device) {
  switch (verdict.outcome) {
    case KvmVerdict::Outcome::works:
      return fmt::format("{} runs guests", device.string());
    case KvmVerdict::Outcome::absent:
      return fmt::format("this computer has no {}", device.string());
    case KvmVerdict::Outcome::no_permission:
      return fmt::format("this user may not open {}", device.string());
    case KvmVerdict::Outcome::broken:
      return fmt::format("{} does not run guests: {}", device.string(), verdict.detail);
  }
  return "";
}

std::string fix_for(const KvmVerdict& verdict, const std::filesystem::path& device) {
  switch (verdict.outcome) {
    case KvmVerdict::Outcome::works:
      return "";
    case KvmVerdict::Outcome::absent:
      return "switch on virtualization (VT-x or AMD-V) in the firmware, or nested virtualization when this "
             "is itself a "
             "virtual machine, then: sudo modprobe -a kvm_intel kvm_amd";
    case KvmVerdict::Outcome::no_permission:
      return fmt::format("sudo usermod -aG kvm \"$USER\", then log in again (the group of {} must be kvm)",
                         device.string());
    case KvmVerdict::Outcome::broken:
      return "nothing to do if this is a virtual machine without full nested virtualization; guests run "
             "emulated";
  }
  return "";
}

Result<AccelerationDecision> decide(AccelerationChoice choice, const KvmVerdict& verdict,
                                    bool libvirt_knows_kvm, const std::filesystem::path& device) {
  if (choice == AccelerationChoice::emulation) return AccelerationDecision{};
  if (verdict.outcome == KvmVerdict::Outcome::works && libvirt_knows_kvm)
    return AccelerationDecision{Acceleration::hardware, ""};
  std::string why = verdict.outcome == KvmVerdict::Outcome::works ? "libvirt or QEMU was built without KVM"
                                                                  : explain(verdict, device);
  if (choice == AccelerationChoice::hardware)
    return fail(ErrorCode::failed_precondition, "hardware virtualization was asked for, but " + why,
                fix_for(verdict, device));
  return AccelerationDecision{Acceleration::emulation, why};
}

Result<AccelerationDecision> decide_acceleration(Driver& driver, const std::filesystem::path& emulator,
                                                 const LibvirtOptions& options) {
  if (options.acceleration == AccelerationChoice::emulation) return AccelerationDecision{};
  KvmVerdict verdict = probe_kvm(options.kvm_device);
  // A daemon may open what this user may not.
  if (verdict.outcome == KvmVerdict::Outcome::no_permission && !driver.embedded())
    verdict = {KvmVerdict::Outcome::works, ""};
  bool known = false;
  if (verdict.outcome == KvmVerdict::Outcome::works) {
    std::unique_ptr<char, void (*)(void*)> capabilities(
        virConnectGetDomainCapabilities(driver.connection(), emulator.c_str(), "x86_64", "microvm", "kvm", 0),
        std::free);
    known = capabilities != nullptr;
  }
  return decide(options.acceleration, verdict, known, options.kvm_device);
}

}  // namespace anchorhold::hypervisor
