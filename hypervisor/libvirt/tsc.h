// The rate of this host's time stamp counter, which an emulated guest reads as its own.
#pragma once

#include <cstdint>
#include <optional>

namespace anchorhold::hypervisor {

// Measured against the raw monotonic clock, to a few parts in a million; takes about 30 ms. Nothing where the
// counter's rate is not constant.
std::optional<std::uint64_t> measure_tsc_khz();

}  // namespace anchorhold::hypervisor
