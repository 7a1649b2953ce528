// A signed image of a few bytes, for what only needs an image to be there and verified.
#pragma once

#include <filesystem>

#include "base/error.h"
#include "images/store.h"

namespace anchorhold::session {

// Made below the folder, as "small".
Result<images::ImageStore> make_small_image(const std::filesystem::path& folder);

}  // namespace anchorhold::session
