// What people's programs do to a folder, as scripts for bash in the guest. Each begins in an empty folder of
// the grant and ends with 0 when all was as it should be. $mode is the grant's.
#pragma once

#include <vector>

namespace anchorhold::mounts {

struct Program {
  const char* name;
  const char* script;
  const char* needs = nullptr;  // a command that the guest has when it was brought along
};

// What the image has.
const std::vector<Program>& programs();
// Version control, and file systems' own tests.
const std::vector<Program>& git_programs();
const std::vector<Program>& thorough_programs();
// What ANCHORHOLD_TEST_PROGRAMS brings into the guest (tools/lib/guest-programs).
const std::vector<Program>& brought_programs();
// What was in the folder before, made by the host in existing/ (see programs_test.cpp).
const std::vector<Program>& programs_on_old_things();

}  // namespace anchorhold::mounts
