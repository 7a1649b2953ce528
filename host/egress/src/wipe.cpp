#include "egress/wipe.h"

#include <sodium.h>

namespace anchorhold::egress {

void wipe(std::string& secret) {
  sodium_memzero(secret.data(), secret.capacity());
  secret.clear();
}

}  // namespace anchorhold::egress
