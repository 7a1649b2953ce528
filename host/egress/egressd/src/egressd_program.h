// The program: before and after it is sealed.
#pragma once

#include <chrono>

#include "base/error.h"

namespace anchorhold::egress {

struct EgressdArguments {
  std::chrono::milliseconds dns_timeout{3000};
  int dns_attempts = 2;
  bool allow_weak = false;
};

Result<EgressdArguments> parse_egressd_arguments(int argc, char** argv);

// Opens what is needed, gives up every other right, and serves until the host is gone.
Status run_egressd(const EgressdArguments& arguments);

}  // namespace anchorhold::egress
