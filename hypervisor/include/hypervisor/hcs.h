// The backend for Windows: the Host Compute System. On other systems the factory is an error (unsupported).
#pragma once

#include <memory>

#include "hypervisor/hypervisor.h"

namespace anchorhold::hypervisor {

Result<std::unique_ptr<Hypervisor>> make_hcs_hypervisor();

}  // namespace anchorhold::hypervisor
