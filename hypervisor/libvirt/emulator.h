// QEMU as a program: where it is and which version.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/error.h"

namespace anchorhold::hypervisor {

struct QemuVersion {
  unsigned major = 0, minor = 0, micro = 0;
  auto operator<=>(const QemuVersion&) const = default;
};
// The first with vhost-user-vsock on microvm, ACPI there, and memfd sharing all as this backend uses them.
inline constexpr QemuVersion oldest_qemu{7, 2, 0};

// The wanted one, else qemu-system-x86_64 from PATH; an error with its fix when there is none to run.
Result<std::filesystem::path> find_emulator(const std::filesystem::path& wanted);
// From "QEMU emulator version 7.2.22 (Debian …)".
Result<QemuVersion> parse_qemu_version(std::string_view output);
// Runs "EMULATOR --version".
Result<QemuVersion> ask_qemu_version(const std::filesystem::path& emulator);
// An error when it is older than oldest_qemu.
Status check_qemu_version(QemuVersion version);

}  // namespace anchorhold::hypervisor
