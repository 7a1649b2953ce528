// The machine as libvirt wants it: domain XML, made by a pure function. Format: https://libvirt.org/formatdomain.html.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "hypervisor/hypervisor.h"

namespace anchorhold::hypervisor {

struct XmlOptions {
  Acceleration acceleration = Acceleration::emulation;
  std::filesystem::path emulator;
  std::filesystem::path console_socket;  // QEMU connects to it and writes what the guest prints
  // The rate of the host's time stamp counter. Without it an emulated guest measures the rate itself, and sometimes hangs
  // at it. Not used with hardware acceleration.
  std::optional<std::uint64_t> tsc_khz;
};

// The name of the domain: other programs of the same libvirt see it.
std::string domain_name(const MachineId& id);
// The kernel's whole command line: the backend's words, then the spec's.
std::string kernel_command_line(const MachineSpec& spec, const XmlOptions& options);
// The spec is valid (validate()).
std::string domain_xml(const MachineSpec& spec, const XmlOptions& options);

}  // namespace anchorhold::hypervisor
