// What booting a bare kernel needs: an initial RAM disk with one program as /init, in the kernel's "newc"
// cpio format (Documentation/driver-api/early-userspace/buffer-format.rst), and QEMU's arguments.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace anchorhold::vsock::testing {

std::string initrd_with_init(const std::filesystem::path& program);
// Along PATH; empty when it is not there.
std::filesystem::path find_program(const std::string& name);
// The kernel's command line for it. It has the rates of the clocks, which a guest cannot measure under
// emulation, and has pages cleared, as kernel_command_line() in hypervisor/libvirt says.
std::string kernel_words();
// A microvm under emulation with the folder's "initrd", its vsock device served at the folder's socket "v",
// and its console in the folder's file "console".
std::vector<std::string> machine_arguments(const std::filesystem::path& qemu,
                                           const std::filesystem::path& kernel,
                                           const std::filesystem::path& folder);

}  // namespace anchorhold::vsock::testing
