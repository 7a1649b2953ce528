#include "reader/coherence.h"

#include <ctime>

#include "base/file_time.h"

namespace anchorhold::mounts {
namespace {

using namespace std::chrono_literals;

// File times move in steps of the kernel's tick (10 ms at most), on some network file systems of a second or
// two: two versions written within one step look alike. A version counts as settled when it was seen later
// than that.
constexpr std::int64_t settling_nanoseconds = 3'000'000'000;

std::int64_t age_nanoseconds(const Statx& info) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return file_time_nanoseconds(now.tv_sec - info.stx_ctime.tv_sec,
                               now.tv_nsec - std::int64_t{info.stx_ctime.tv_nsec});
}

CachedVersion version_of(const Statx& info) {
  return {info.stx_mtime.tv_sec,  info.stx_ctime.tv_sec, info.stx_mtime.tv_nsec,
          info.stx_ctime.tv_nsec, info.stx_size,         true};
}

}  // namespace

CacheTimes Coherence::tell(Watching watched, const NodeRef& node, const Statx& info) {
  CacheTimes times;
  if (S_ISREG(info.stx_mode)) nodes_.set_told_version(node, version_of(info));
  if (watched == Watching::soon) return {0ms, 0ms};
  if (watched == Watching::no) return times;
  times.entry = watched_time;
  // A folder's own attributes change with what is in it. A file may be changed by another name, which is not
  // watched. And who changed what the guest is changing just now cannot be told apart.
  bool told = S_ISDIR(info.stx_mode)   ? watch_->is_watched(node)
              : S_ISREG(info.stx_mode) ? info.stx_nlink == 1 && !watch_->recently_changed(node)
                                       : true;
  if (told) times.attributes = watched_time;
  return times;
}

CacheTimes Coherence::absence(Watching watched) const {
  CacheTimes times;
  if (watched != Watching::no) times.entry = watched == Watching::yes ? watched_time : 0ms;
  return times;
}

void Coherence::changed_by_guest(const NodeRef& node, const Statx& info) {
  nodes_.set_told_version(node, version_of(info));
}

bool Coherence::has_to_look_again(const NodeRef& node, const Statx& info, std::uint32_t caller) {
  auto parent = nodes_.parent(node);
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    if (auto found = refused_.find(caller); found != refused_.end()) {
      again = found->second == 0 || (parent && found->second == parent->id());
      refused_.erase(found);
    }
  }
  // What lost its name, as far as we know, may have it still for the guest's kernel: it is told just now.
  return !again && !(parent && nodes_.told_version(node) == version_of(info) && nodes_.is_in_place(node));
}

void Coherence::was_refused(const NodeRef& node, std::uint32_t caller) {
  constexpr std::size_t most_callers = 4096;
  auto parent = node->is_directory() ? nullptr : nodes_.parent(node);
  std::lock_guard lock(mutex_);
  if (refused_.size() >= most_callers) refused_.clear();
  refused_[caller] = parent ? parent->id() : 0;
}

bool Coherence::may_keep_pages(const NodeRef& node, const Statx& info) {
  CachedVersion seen = version_of(info);
  auto before = nodes_.cached_version(node);
  bool same = before == seen;
  if (same) return true;
  seen.settled = age_nanoseconds(info) > settling_nanoseconds;
  nodes_.set_cached_version(node, seen);
  return false;
}

}  // namespace anchorhold::mounts
