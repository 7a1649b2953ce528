// How long the guest may believe what it was told, and when it may keep the pages it has of a file.
//
// Host edits are not announced to the guest by this class, so what the guest caches ends by itself: names and
// attributes after at most a second, pages when an open or fresh attributes show another version of the file.
// A watcher that announces host edits makes longer times possible: it belongs here and nowhere else.
#pragma once

#include <chrono>

#include "reader/node_table.h"

namespace anchorhold::mounts {

struct CacheTimes {
  std::chrono::milliseconds entry{1000};
  std::chrono::milliseconds attributes{1000};
  std::chrono::milliseconds absence{1000};  // of a name that is not there
};

class Coherence {
 public:
  explicit Coherence(NodeTable& nodes) : nodes_(nodes) {}

  const CacheTimes& times() const { return times_; }
  // At an open: whether the pages the guest has of the file are those of the file as it is. Remembers the
  // version.
  bool may_keep_pages(const NodeRef& node, const Statx& info);

 private:
  NodeTable& nodes_;
  CacheTimes times_;
};

}  // namespace anchorhold::mounts
