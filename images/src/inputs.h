// The hash of everything that decides what a stage's script writes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "images/recipe.h"

namespace anchorhold::images {

// Names, execute bits and contents of files, in a fixed order; folders are walked. 20 hexadecimal digits.
// `sources` is where the stage's source lies; `extra` is whatever else decides (mirrors, our own format).
Result<std::string> hash_inputs(const StageRecipe& stage, const std::filesystem::path& sources,
                                std::string_view extra);

// Where the stage's source is; an error names the package to install.
Result<std::filesystem::path> find_source(const StageRecipe& stage, const std::filesystem::path& sources);
// One error that names all missing programs of the stage and their packages.
Status check_tools(const StageRecipe& stage, std::string_view what);

}  // namespace anchorhold::images
