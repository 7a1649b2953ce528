// Where a guest's hypervisor finds a device of ours.
#pragma once

#include <filesystem>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::mounts {

// A listening unix socket at the path, which only this user can connect to; what was there is replaced.
Result<UniqueFd> listen_at(const std::filesystem::path& path);
Result<UniqueFd> connect_to(const std::filesystem::path& path);

}  // namespace anchorhold::mounts
