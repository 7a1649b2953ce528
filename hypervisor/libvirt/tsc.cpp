#include "libvirt/tsc.h"

#include <algorithm>
#include <array>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace anchorhold::hypervisor {

#if defined(__x86_64__)
namespace {

struct Sample {
  std::uint64_t ticks;
  std::int64_t nanoseconds;
};

// The reading with the smallest gap between two ticks around one look at the clock: no interrupt came
// between.
Sample sample() {
  Sample best{};
  std::uint64_t smallest_gap = ~0ull;
  for (int i = 0; i < 16; ++i) {
    unsigned processor;
    timespec now;
    std::uint64_t before = __rdtscp(&processor);
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    std::uint64_t after = __rdtscp(&processor);
    if (after - before >= smallest_gap) continue;
    smallest_gap = after - before;
    best = {before + smallest_gap / 2, now.tv_sec * 1'000'000'000ll + now.tv_nsec};
  }
  return best;
}

// AMD64 manual volume 3, Fn8000_0007 EDX bit 8; also Intel SDM volume 3, 18.17.1.
bool has_constant_rate() {
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
}

}  // namespace

std::optional<std::uint64_t> measure_tsc_khz() {
  if (!has_constant_rate()) return std::nullopt;
  std::array<std::uint64_t, 3> rates;
  for (auto& rate : rates) {
    Sample start = sample();
    timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
    Sample end = sample();
    auto elapsed = static_cast<unsigned __int128>(end.nanoseconds - start.nanoseconds);
    if (elapsed == 0) return std::nullopt;
    rate = static_cast<std::uint64_t>(static_cast<unsigned __int128>(end.ticks - start.ticks) * 1'000'000 /
                                      elapsed);
  }
  std::sort(rates.begin(), rates.end());
  return rates[1];
}
#else
std::optional<std::uint64_t> measure_tsc_khz() {
  return std::nullopt;
}
#endif

}  // namespace anchorhold::hypervisor
