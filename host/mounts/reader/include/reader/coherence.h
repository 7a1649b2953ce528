// How long the guest may believe what it was told, and when it may keep the pages it has of a file.
//
// Where nobody tells the guest of host edits, what it caches ends by itself: names and attributes after at
// most a second, pages when an open or fresh attributes show another version of the file. In folders that are
// watched (host_watch.h) it may believe for longer, since it is told of every change; and of one that is
// about to be, nothing, so that a command that starts after a change does not see what was before it.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "reader/host_watch.h"
#include "reader/node_table.h"

namespace anchorhold::mounts {

struct CacheTimes {
  std::chrono::milliseconds entry{1000};  // of a name, also of one that is not there
  std::chrono::milliseconds attributes{1000};
};

// Safe from any thread.
class Coherence {
 public:
  explicit Coherence(NodeTable& nodes) : nodes_(nodes) {}
  // Before the first request; without it every time is a second.
  void rely_on(HostWatch& watch) { watch_ = &watch; }

  // Whether changes of names in the folder are told. To be asked before what is told to the guest is looked
  // up: a change in between is then told.
  Watching watched(const NodeRef& folder) const { return watch_ ? watch_->watches(folder) : Watching::no; }
  // Until it is not Watching::soon any more.
  void wait_until_decided(const NodeRef& folder) const { watch_->wait_until_decided(folder); }
  // The folder is watched and about to be listed: whether it was before, and nothing went untold since.
  bool was_listed(const NodeRef& folder) { return watch_ && watch_->was_listed(folder); }
  // The guest is about to be told of an object that was looked up in a folder which was, or was not, watched.
  CacheTimes tell(Watching watched, const NodeRef& node, const Statx& info);
  // The guest changed the object itself and asks for its attributes before it uses them again.
  void changed_by_guest(const NodeRef& node, const Statx& info);
  CacheTimes absence(Watching watched) const;

  // At an open: whether the guest believes something of the file that is not so (any more), which an open
  // does not put right. Its kernel looks up the path again when it is refused with ESTALE, once; the caller
  // (a thread of the guest) that comes again is not refused, since a file may change all the time.
  bool has_to_look_again(const NodeRef& node, const Statx& info, std::uint32_t caller);
  // The caller was refused with ESTALE, here or because there was nothing any more: it looks again, and is
  // not refused when it opens what it finds in the same folder.
  void was_refused(const NodeRef& node, std::uint32_t caller);
  // At an open: whether the pages the guest has of the file are those of the file as it is. Remembers the
  // version.
  bool may_keep_pages(const NodeRef& node, const Statx& info);

 private:
  NodeTable& nodes_;
  HostWatch* watch_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::uint64_t> refused_;  // by caller: the folder, 0 for any
};

}  // namespace anchorhold::mounts
