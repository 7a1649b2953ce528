// The reaper is a small program (anchorhold-reaper) that waits for its host to be gone, however that
// happened, and then ends what the host left running.
#pragma once

#include <filesystem>
#include <memory>

#include "base/error.h"

namespace anchorhold::hypervisor {

// The host's end. Owned by one thread; watch() may be called from any.
class Reaper {
 public:
  // The folder is this host's alone, named embed-…: QEMUs and programs of ours that were started with a path
  // in it are ended, and the folder is removed, when this object or this process is gone.
  static Result<std::unique_ptr<Reaper>> start(const std::filesystem::path& folder);
  virtual ~Reaper() = default;
  // Also ends this process, by its number and its start time. It must be a child that was not yet waited for.
  virtual Status watch(int process) = 0;
};

}  // namespace anchorhold::hypervisor
