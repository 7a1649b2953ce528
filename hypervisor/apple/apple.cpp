#include "hypervisor/apple.h"

namespace anchorhold::hypervisor {

Result<std::unique_ptr<Hypervisor>> make_apple_hypervisor() {
  return fail(ErrorCode::unsupported,
              "Apple's Virtualization framework is part of macOS, and this is not macOS",
              "use the libvirt backend here");
}

}  // namespace anchorhold::hypervisor
