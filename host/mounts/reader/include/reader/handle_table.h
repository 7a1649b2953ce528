// Files and folders the guest has open: FUSE's file handles. Safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "reader/node_table.h"
#include "reader/outcome.h"

namespace anchorhold::mounts {

// An open file. Immutable, so threads use it side by side.
struct FileHandle {
  UniqueFd descriptor;
  NodeRef node;
  bool writable = false;
};

// An open folder: one listing at a time. What the kernel gave in one piece and the guest had no room for is
// kept.
struct FolderHandle {
  UniqueFd descriptor;
  NodeRef node;
  std::mutex mutex;
  std::vector<char> buffer;
  std::size_t used = 0;       // bytes of the buffer that hold entries
  std::size_t next = 0;       // where the next entry begins
  std::int64_t position = 0;  // the offset of that entry, as the guest names it
};

class HandleTable {
 public:
  explicit HandleTable(std::size_t limit) : limit_(limit) {}

  // ENFILE at the bound.
  Outcome<std::uint64_t> add(std::shared_ptr<FileHandle> file);
  Outcome<std::uint64_t> add(std::shared_ptr<FolderHandle> folder);
  // EBADF for a handle that is not known, or of the other kind.
  Outcome<std::shared_ptr<FileHandle>> file(std::uint64_t id) const;
  Outcome<std::shared_ptr<FolderHandle>> folder(std::uint64_t id) const;
  // A descriptor that the guest has open of the file or folder; none if it has not.
  SharedFd descriptor_of(const NodeRef& node) const;
  // The descriptor closes when the last request that uses it ended.
  bool remove(std::uint64_t id);
  void clear();
  std::size_t count() const;

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, std::shared_ptr<FileHandle>> files_;
  std::unordered_map<std::uint64_t, std::shared_ptr<FolderHandle>> folders_;
};

}  // namespace anchorhold::mounts
