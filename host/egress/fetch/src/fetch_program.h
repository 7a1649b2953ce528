// anchorhold-fetch as a library: seal, read the order, fetch, answer.
#pragma once

#include "base/error.h"

namespace anchorhold::egress {

Status run_fetch(bool allow_weak);

}  // namespace anchorhold::egress
