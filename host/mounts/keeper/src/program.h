// The keeper's program without its main: arguments, seal, serving.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/seal.h"
#include "keeper.h"
#include "mounts/mode.h"

namespace anchorhold::mounts {

struct KeeperArguments {
  std::string name;
  Mode mode = Mode::rw;
  std::filesystem::path ledger;
  int clients = 0;
  std::optional<std::string> only_file;
  std::vector<std::string> hidden;  // empty: the standard list
  LedgerLimits limits;
  KeeperLimits session;
  bool allow_weak = false;
};
Result<KeeperArguments> parse_keeper_arguments(int argc, const char* const* argv);

// All that is left to the keeper: reading and changing files beneath the two folders, and its sockets. The
// descriptors are those of mounts/programs.h.
SealPolicy keeper_seal(int root, int ledger_folder, int clients, bool allow_weak);

// Runs to the end; the value is the exit status.
int run_keeper(int argc, const char* const* argv);

}  // namespace anchorhold::mounts
