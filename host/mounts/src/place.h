// A guest-visible path, found in its grant.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "mounts/access.h"

namespace anchorhold::mounts {

struct Place {
  std::shared_ptr<const AccessibleGrant> grant;
  std::vector<std::string> parts;  // below the grant; empty: the granted folder itself
  std::string shown;               // as it was asked for, for messages
};

// The words of an absolute path, with "." and ".." resolved; invalid_argument for a relative one or one with
// NUL.
Result<std::vector<std::string>> split_path(const std::string& path);

// Where the path lies; not_found when a hidden name is on the way.
Result<Place> find_place(std::span<const std::shared_ptr<const AccessibleGrant>> grants,
                         const std::string& path);

// O_PATH of what is there, symlinks followed within the grant. not_found also when they lead to a hidden
// name.
Result<UniqueFd> open_place(const Place& place);
// The first `count` parts only: a parent.
Result<UniqueFd> open_place(const Place& place, std::size_t count);
// Where in the grant an open object is now.
Result<std::vector<std::string>> parts_of(const Place& place, int object);

}  // namespace anchorhold::mounts
