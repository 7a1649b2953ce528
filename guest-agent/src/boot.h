// The first moments of PID 1: from the kernel's bare initramfs to a system that commands can run in.
#pragma once

#include <string>

#include "base/error.h"
#include "boot_words.h"

namespace anchorhold::guest {

// Mounts what a system needs and, when the words name a root, moves onto it: the verified read-only file
// system below, a bounded tmpfs above, nothing of the initramfs left but this program. Called once, by PID 1,
// while single-threaded.
Status boot();

// Where boot() mounts the control groups.
inline constexpr const char* group_mount = "/sys/fs/cgroup";

}  // namespace anchorhold::guest
