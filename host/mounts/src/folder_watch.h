// The host's part in watching a granted folder for one reader (mounts/watch_protocol.h): adds watches to the
// reader's inotify instance for folders that really are beneath the grant, and passes on what the reader
// found.
#pragma once

#include <functional>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "mounts/host_change.h"

namespace anchorhold::mounts {

// At most so many folders of one grant are watched; what is in others the guest remembers for a second.
inline constexpr std::size_t max_watched_folders = 8192;

class FolderWatch {
 public:
  struct Ends {  // for the reader
    UniqueFd socket;
    UniqueFd events;
  };
  // The sink is called on a thread of the watch and must not block for long; when it returns false the
  // watching ends. A change that could not be told any other way is told as a lost one.
  static Result<std::unique_ptr<FolderWatch>> start(int root, std::function<bool(HostChange)> sink,
                                                    Ends& ends);
  // Ends the thread.
  ~FolderWatch();

  // Calls `done` once: when the sink was called for all that programs of the host had changed before, or when
  // that will not be known. On a thread of the watch, or on this one before it returns; `done` must not block
  // and must not call back. Safe from any thread.
  void settle(std::function<void()> done);

 private:
  struct State;
  explicit FolderWatch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace anchorhold::mounts
