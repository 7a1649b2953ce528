// Undo: makes what an epoch touched as it was before it. Looks at what is there instead of replaying what was
// done, so that it ends at the same tree however often it is interrupted and begun again.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace anchorhold::mounts {

struct RestoreSpec {
  int root = -1;                           // O_PATH of the granted folder
  std::optional<std::string> only_file{};  // as in Tree
  std::filesystem::path ledger{};
  bool redo = false;                 // takes the latest undo back instead of undoing the session
  std::vector<std::string> paths{};  // from the grant, with all beneath them; none: everything
  bool force = false;                // also what somebody else changed since
  bool dry_run = false;
};

enum class StepKind { remove, put_back, move_back, link, content, attributes, left_in_place };

struct Step {
  StepKind kind = StepKind::remove;
  std::string path;
  std::string other;  // move_back: where it was
};

struct Refusal {
  std::string path;
  std::string reason;
};

struct RestoreResult {
  std::vector<Step> steps;  // what was done, or would be
  std::vector<Refusal> refused;
  std::int64_t epoch = 0;  // that keeps what was replaced; 0: nothing was changed
};

// Errors: not_found (no ledger; redo: no undo to take back). What could not be done for single paths is in
// `refused`.
Result<RestoreResult> restore(const RestoreSpec& spec);

}  // namespace anchorhold::mounts
