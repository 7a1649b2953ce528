// The net effect of a session on its folder, for a person: not what was done one after another, but what is
// different now.
#pragma once

#include "items.h"
#include "mounts/review.h"

namespace anchorhold::mounts {

struct NetOptions {
  bool diff = false;
  std::vector<std::string> paths;
};

// Risks first, then by path. At most max_changes; the rest is counted in left_out.
inline constexpr std::size_t max_changes = 100'000;
std::vector<Change> net_changes(Situation& situation, int root, int kept, const NetOptions& options,
                                std::uint64_t& left_out);

}  // namespace anchorhold::mounts
