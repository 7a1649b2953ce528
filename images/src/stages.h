// Finished stages in the store's stages/ folder, and the making of one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "images/build.h"

namespace anchorhold::images {

struct FinishedStage {
  Component component;
  std::optional<Verity> verity;  // of the root file system
};

// What makes a stage: writes one file. The folder is empty scratch on the store's file system.
using MakeFile =
    std::function<Status(const std::filesystem::path& output, const std::filesystem::path& scratch)>;

struct StagePlan {
  Stage stage;
  std::string file;     // "vmlinux"
  std::string inputs;   // hash_inputs
  bool verity = false;  // append a hash tree
  ByteSize limit;       // 0: none
  MakeFile make;
};

// A stage with these inputs whose bytes are still what was built, the newest first; none when there is no
// such.
std::optional<FinishedStage> find_stage(const ImageStore& store, const StagePlan& plan);
// Makes the stage aside and renames it into place. `suffix` tells refreshed builds of the same inputs apart.
Result<FinishedStage> make_stage(const ImageStore& store, const StagePlan& plan, const std::string& suffix);

// Appends the hash tree to a file and returns its parameters (veritysetup(8)).
Result<Verity> append_verity(const std::filesystem::path& file);

}  // namespace anchorhold::images
