#include "reader/coherence.h"

#include <ctime>

namespace anchorhold::mounts {
namespace {

// File times move in steps of the kernel's tick (10 ms at most), on some network file systems of a second or
// two: two versions written within one step look alike. A version counts as settled when it was seen later
// than that.
constexpr std::int64_t settling_nanoseconds = 3'000'000'000;

std::int64_t age_nanoseconds(const Statx& info) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (now.tv_sec - info.stx_ctime.tv_sec) * 1'000'000'000 + now.tv_nsec - info.stx_ctime.tv_nsec;
}

}  // namespace

bool Coherence::may_keep_pages(const NodeRef& node, const Statx& info) {
  CachedVersion seen{info.stx_mtime.tv_sec,  info.stx_ctime.tv_sec, info.stx_mtime.tv_nsec,
                     info.stx_ctime.tv_nsec, info.stx_size,         true};
  auto before = nodes_.cached_version(node);
  bool same = before == seen;
  if (same) return true;
  seen.settled = age_nanoseconds(info) > settling_nanoseconds;
  nodes_.set_cached_version(node, seen);
  return false;
}

}  // namespace anchorhold::mounts
