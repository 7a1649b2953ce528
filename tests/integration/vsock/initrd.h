// An initial RAM disk with one program as /init, in the kernel's "newc" cpio format
// (Documentation/driver-api/early-userspace/buffer-format.rst), and what else booting a bare kernel needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace anchorhold::vsock::testing {

std::string initrd_with_init(const std::filesystem::path& program);
// Along PATH; empty when it is not there.
std::filesystem::path find_program(const std::string& name);
// The rate of the time stamp counter, which the guest cannot measure under emulation.
std::uint64_t tsc_khz();

}  // namespace anchorhold::vsock::testing
