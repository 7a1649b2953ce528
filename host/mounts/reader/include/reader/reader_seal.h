// Everything the reader may still do once it is sealed: look up names and open files for reading beneath the
// granted folder, and move bytes between descriptors it holds. It can change no file by itself, in any mode:
// what it writes to was opened by the keeper.
#pragma once

#include "base/error.h"
#include "base/seal.h"

namespace anchorhold::mounts {

struct ReaderSeal {
  int root = -1;             // O_PATH|O_DIRECTORY of the granted folder
  int own_descriptors = -1;  // O_PATH|O_DIRECTORY of /proc/self/fd
  std::vector<int> sockets;  // listener, reports, keeper
  bool writes = false;       // there is a keeper that hands out writable descriptors
  bool allow_weak = false;
};

SealPolicy reader_policy(const ReaderSeal& seal);

// Root's capabilities besides reading what others own; nothing for an ordinary user. Before sealing.
Status drop_capabilities();

}  // namespace anchorhold::mounts
