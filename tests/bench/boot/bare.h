// The peer of our machines: QEMU started by hand with the same kernel, memory and devices, and a static init.
#pragma once

#include <chrono>

#include "base/process.h"
#include "hypervisor/tiny_guest.h"

namespace anchorhold::bench {

using Steady = std::chrono::steady_clock;

inline double milliseconds_since(Steady::time_point start) {
  return std::chrono::duration<double, std::milli>(Steady::now() - start).count();
}

struct BareMachine {
  Child child;
  double up_ms = 0;              // from the start of QEMU until init has spoken
  double kernel_to_init_ms = 0;  // of these, the guest's own
};

// Exits with a message when it does not come up.
BareMachine start_bare(hypervisor::TestHost& host, ByteSize memory);
// What a tiny init said of the time since its kernel began.
double kernel_to_init_ms(const std::string& console);

}  // namespace anchorhold::bench
