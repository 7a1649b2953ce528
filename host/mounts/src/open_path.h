// Where an open object is now: the kernel's own answer, which follows renames.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold::mounts {

// `what` begins the message of an error. A path that does not fit PATH_MAX is an error, never cut.
Result<std::string> path_of(int fd, std::string_view what);

}  // namespace anchorhold::mounts
