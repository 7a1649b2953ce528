// Who owns what, as the guest sees it: what belongs to the person on the host belongs to the guest's user,
// what belongs to others on the host belongs to nobody. Host files never change their owner.
#pragma once

#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace anchorhold::mounts {

// Immutable; safe from any thread.
class Owners {
 public:
  static constexpr std::uint32_t guest_user = 1000;
  static constexpr std::uint32_t guest_group = 1000;
  static constexpr std::uint32_t nobody = 65534;

  Owners(uid_t user, std::vector<gid_t> groups) : user_(user), groups_(std::move(groups)) {}
  // Of this process. Root may do everything to every file, so everything is its own.
  static Owners current();

  std::uint32_t guest_uid(uid_t host) const;
  std::uint32_t guest_gid(gid_t host) const;

 private:
  uid_t user_;
  std::vector<gid_t> groups_;
};

}  // namespace anchorhold::mounts
