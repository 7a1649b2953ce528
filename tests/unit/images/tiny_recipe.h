// A store, a key folder and a recipe whose scripts take milliseconds, in a folder of their own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "images/build.h"
#include "images/verified_image.h"

namespace anchorhold::images {

class TinyRecipe {
 public:
  TinyRecipe();

  std::filesystem::path path(std::string_view name) const { return directory_.path() / name; }
  void write(std::string_view name, std::string_view text, unsigned mode = 0644) const;
  // Replaces a script of the recipe "tiny"; each run of it is noted first.
  void set_script(std::string_view stage, const std::string& body) const;
  // Adds members to the recipe document's stage, such as "\"limit_mib\": 1".
  void set_recipe(const std::string& kernel_extra, const std::string& rootfs_extra) const;
  // "kernel", "rootfs", in the order they ran.
  std::vector<std::string> runs() const;

  ImageStore store() const;
  BuildOptions options() const;
  Result<BuiltImage> build(std::stop_token stop = {}) const {
    return images::build(store(), "tiny", options(), stop);
  }
  Result<VerifiedImage> verify() const { return VerifiedImage::verify(store(), "tiny"); }

 private:
  TemporaryDirectory directory_;
};

// Waits for a condition that another process brings about; false after a minute.
bool eventually(const std::function<bool()>& condition);

}  // namespace anchorhold::images
