// The part of the file system that one QEMU may see, in force from before its first instruction (Landlock).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anchorhold::hypervisor {

// How the host tells the launcher, through QEMU's environment.
inline constexpr const char* view_variable = "ANCHORHOLD_QEMU_VIEW";
inline constexpr const char* program_variable = "ANCHORHOLD_QEMU_PROGRAM";

struct QemuView {
  std::vector<std::filesystem::path> read;  // files; a folder stands for all beneath it
  std::vector<std::filesystem::path> write;
};

std::string encode_view(const QemuView& view);
Result<QemuView> decode_view(std::string_view text);

// QEMU's program, libraries and firmware, and the devices that every machine uses.
std::vector<std::filesystem::path> system_files();
// For this thread and all it starts, for good; paths that do not exist are left out. Fails where the kernel
// has no Landlock. Linux, Documentation/userspace-api/landlock.rst.
Status restrict_to(const QemuView& view);
// Gives up what root may beyond other users, for good (capabilities(7)); changes nothing for other users.
Status drop_capabilities();

}  // namespace anchorhold::hypervisor
