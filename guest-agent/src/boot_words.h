// What the host tells the agent before there is a stream: the kernel's command line (/proc/cmdline).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold::guest {

struct BootWords {
  std::string root;                            // anchorhold.root=/dev/dm-0; empty: stay in the initramfs
  std::optional<std::uint64_t> scratch_bytes;  // anchorhold.scratch=BYTES; none: half of the memory
};

// Words are separated by spaces; double quotes keep spaces together, as in the kernel's next_arg(). Words
// that are not ours are skipped. An unknown or malformed "anchorhold." word is an error: host and guest would
// disagree silently.
Result<BootWords> parse_boot_words(std::string_view command_line);

}  // namespace anchorhold::guest
