#include "hypervisor/hcs.h"

namespace anchorhold::hypervisor {

Result<std::unique_ptr<Hypervisor>> make_hcs_hypervisor() {
  return fail(ErrorCode::unsupported, "the Host Compute System is part of Windows, and this is not Windows",
              "use the libvirt backend here");
}

}  // namespace anchorhold::hypervisor
