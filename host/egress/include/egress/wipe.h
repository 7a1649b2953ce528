// Forgetting a secret.
#pragma once

#include <string>

namespace anchorhold::egress {

// Overwrites and empties; the compiler does not leave it out.
void wipe(std::string& secret);

}  // namespace anchorhold::egress
