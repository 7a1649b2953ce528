// A recipe: what an image is built from. recipes/<name>/recipe.json names, for the kernel and for the root
// file system, a script that writes one file, the files and folders it depends on, and the programs it needs.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace anchorhold::images {

struct StageRecipe {
  std::filesystem::path script;
  std::vector<std::filesystem::path> inputs;       // files and folders whose contents decide the result
  std::map<std::string, std::string> tools;        // program → Debian package
  std::vector<std::vector<std::string>> versions;  // commands whose output decides the result
  std::string source;                              // "linux-source-6.1": /usr/src/<source>.tar.xz, or empty
  ByteSize limit;                                  // of the file it writes; 0: none
  ByteSize space;                                  // free disk space that building needs; 0: not known
};

struct Recipe {
  std::string name;
  std::string description;
  std::filesystem::path folder;
  StageRecipe kernel;
  StageRecipe rootfs;
};

// `recipes` is the folder of all recipes: images/recipes of the source, or
// /usr/share/anchorhold/images/recipes.
Result<Recipe> load_recipe(const std::filesystem::path& recipes, const std::string& name);
Result<std::vector<std::string>> list_recipes(const std::filesystem::path& recipes);
// Exposed for its tests: paths in the document are relative to `folder`.
Result<Recipe> parse_recipe(std::string_view json, const std::string& name,
                            const std::filesystem::path& folder);

}  // namespace anchorhold::images
