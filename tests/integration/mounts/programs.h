// What people's programs do to a folder, as scripts for bash in the guest. Each begins in an empty folder of
// the grant and ends with 0 when all was as it should be.
#pragma once

#include <vector>

namespace anchorhold::mounts {

struct Program {
  const char* name;
  const char* script;
};

const std::vector<Program>& programs();

}  // namespace anchorhold::mounts
