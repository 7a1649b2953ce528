#include "mounts/mode.h"

namespace anchorhold::mounts {

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::ro:
      return "ro";
    case Mode::rw:
      return "rw";
    case Mode::rw_no_delete:
      return "rw-no-delete";
  }
  return "unknown";
}

std::optional<Mode> parse_mode(std::string_view text) {
  for (Mode mode : {Mode::ro, Mode::rw, Mode::rw_no_delete})
    if (text == to_string(mode)) return mode;
  return std::nullopt;
}

int strictness(Mode mode) {
  switch (mode) {
    case Mode::rw:
      return 0;
    case Mode::rw_no_delete:
      return 1;
    case Mode::ro:
      return 2;
  }
  return 2;
}

}  // namespace anchorhold::mounts
