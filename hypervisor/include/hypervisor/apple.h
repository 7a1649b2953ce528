// The backend for macOS: Apple's Virtualization framework. On other systems the factory is an error
// (unsupported).
#pragma once

#include <memory>

#include "hypervisor/hypervisor.h"

namespace anchorhold::hypervisor {

Result<std::unique_ptr<Hypervisor>> make_apple_hypervisor();

}  // namespace anchorhold::hypervisor
