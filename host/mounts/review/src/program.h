// The program anchorhold-ledger without its main: arguments, seal, then the review or the undo, told on a
// pipe (review_wire.h).
#pragma once

#include "base/seal.h"

namespace anchorhold::mounts {

// Reading, and for an undo changing, beneath the two folders; nothing else.
SealPolicy ledger_seal(int root, int ledger_folder, bool changes, bool allow_weak);

// Runs to the end; the value is the exit status.
int run_ledger(int argc, const char* const* argv);

}  // namespace anchorhold::mounts
