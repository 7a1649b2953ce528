// How much memory a machine can have, for who asks before there is a machine.
#pragma once

#include "base/error.h"
#include "base/units.h"

namespace anchorhold::hypervisor {

// Ok, or an error that says what is possible; the same that validate() says of a MachineSpec.
Status validate_memory(ByteSize memory);

}  // namespace anchorhold::hypervisor
