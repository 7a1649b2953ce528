// Building: each stage (kernel, root file system, initial RAM disk) is made aside, synced and renamed into
// the store under the hash of its inputs, and made again only when those change or its bytes did. Then the
// manifest is written and signed.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/error.h"
#include "images/recipe.h"
#include "images/signature.h"
#include "images/store.h"

namespace anchorhold::images {

enum class Stage { kernel, rootfs, initrd };
std::string_view to_string(Stage stage);

struct BuildProgress {
  enum class Kind {
    waiting,   // another process builds in this store
    cached,    // the stage is there already
    started,   // the stage is being built
    advanced,  // percent and text are new
    output,    // text is one line that the build printed
    finished,  // the stage is in the store
  };
  Kind kind = Kind::started;
  Stage stage = Stage::kernel;
  int percent = 0;  // of the stage
  std::string_view text;
};

struct BuildOptions {
  std::filesystem::path recipes;     // see load_recipe
  std::filesystem::path agent;       // the static program that becomes the guest's PID 1
  std::filesystem::path key_folder;  // see SigningKey
  std::filesystem::path sources = "/usr/src";
  std::string mirrors;   // sources.list lines; empty: Debian's default
  unsigned jobs = 0;     // compilers at once; 0: as many as processors
  bool refresh = false;  // take the packages of today even when nothing here changed
  // Called on the building thread.
  std::function<void(const BuildProgress&)> progress;
};

struct BuiltImage {
  Manifest manifest;
  bool changed = false;  // false: everything was there already
};

// Takes minutes the first time; call it on a worker. A stop ends the scripts and all they started, leaves the
// store as it was (finished stages are kept) and returns cancelled.
Result<BuiltImage> build(const ImageStore& store, const std::string& name, const BuildOptions& options,
                         std::stop_token stop = {});

// <config>/image-keys: where a person's own signing key lies.
Result<std::filesystem::path> default_key_folder();

}  // namespace anchorhold::images
