// What a grant allows.
#pragma once

#include <optional>
#include <string_view>

namespace anchorhold::mounts {

enum class Mode { ro, rw, rw_no_delete };
std::string_view to_string(Mode mode);  // "ro", "rw", "rw-no-delete"
std::optional<Mode> parse_mode(std::string_view text);

// The more a mode protects, the greater: ro > rw_no_delete > rw.
int strictness(Mode mode);

}  // namespace anchorhold::mounts
