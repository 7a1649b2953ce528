#include "reader/owners.h"

#include <algorithm>
#include <unistd.h>

namespace anchorhold::mounts {

Owners Owners::current() {
  std::vector<gid_t> groups{getegid()};
  if (int count = getgroups(0, nullptr); count > 0) {
    std::vector<gid_t> more(static_cast<std::size_t>(count));
    count = getgroups(count, more.data());
    if (count > 0) groups.insert(groups.end(), more.begin(), more.begin() + count);
  }
  return Owners(geteuid(), std::move(groups));
}

std::uint32_t Owners::guest_uid(uid_t host) const {
  return user_ == 0 || host == user_ ? guest_user : nobody;
}

std::uint32_t Owners::guest_gid(gid_t host) const {
  return user_ == 0 || std::find(groups_.begin(), groups_.end(), host) != groups_.end() ? guest_group
                                                                                        : nobody;
}

}  // namespace anchorhold::mounts
