// Who a command runs as: the guest's /etc/passwd and /etc/group, read by hand because a static program has no
// NSS.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/error.h"

namespace anchorhold::guest {

struct Account {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string home;
  std::string shell;
  std::vector<gid_t> groups;  // supplementary
};

inline constexpr uid_t default_uid = 1000;
inline constexpr std::string_view default_user = "anchorhold";

// `who` is a name or a number; empty is the default. A number without an entry is a user without a home.
// Pure; the texts are those of passwd(5) and group(5), lines that make no sense are skipped.
Result<Account> find_account(std::string_view who, std::string_view passwd, std::string_view group);

// The same from the files of this system.
Result<Account> find_account(std::string_view who);

}  // namespace anchorhold::guest
