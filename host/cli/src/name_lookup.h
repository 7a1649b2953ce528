// The addresses of a name now, from the host's nameservers alone: no hosts file, no search domains.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "policy/destination.h"

namespace anchorhold::cli {

// not_found: there is no such name, or it has no address; unavailable: no answer. permission_denied: an
// address that hides another one, and so cannot be judged.
Result<std::vector<policy::Address>> look_up(const std::string& name);
// Of this computer's interfaces.
std::vector<policy::Address> own_addresses();

}  // namespace anchorhold::cli
