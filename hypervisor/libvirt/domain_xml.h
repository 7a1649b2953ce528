// The machine as libvirt wants it: domain XML, made by a pure function. Format:
// https://libvirt.org/formatdomain.html.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hypervisor/hypervisor.h"

namespace anchorhold::hypervisor {

struct XmlOptions {
  std::string name;  // of the domain, see domain_name()
  Acceleration acceleration = Acceleration::emulation;
  std::filesystem::path emulator;
  std::vector<std::pair<std::string, std::string>> environment;  // of QEMU, besides what libvirt gives it
  std::filesystem::path console_socket;  // QEMU connects to it and writes what the guest prints
  // The rate of the host's time stamp counter. Without it an emulated guest measures the rate itself, and
  // sometimes hangs at it. Not used with hardware acceleration.
  std::optional<std::uint64_t> tsc_khz;
};

// Other programs of the same libvirt see the name. The run makes it unique: libvirt still cleans up after one
// run of a machine when the next one starts.
std::string domain_name(const MachineId& id, std::string_view run);
// The kernel's whole command line: the backend's words, then the spec's.
std::string kernel_command_line(const MachineSpec& spec, const XmlOptions& options);
// The spec is valid (validate()).
std::string domain_xml(const MachineSpec& spec, const XmlOptions& options);

}  // namespace anchorhold::hypervisor
