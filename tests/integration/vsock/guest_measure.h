// What the guest's port 6003 is told: a port of the host to dial, what to send there and wait for the end of
// the answer's head (nothing: a raw stream), and what to measure then. It answers with nanoseconds of its
// clock (64 bits), or closes.
// At the other end: "p" is answered with 4 bytes, "s" with bytes for ever, and the end after "k" with 4
// bytes.
#pragma once

#include <cstdint>

namespace anchorhold::vsock::testing {

struct Measure {
  enum Kind : std::uint32_t {
    round_trips,  // count of them
    down,         // count bytes
    up,
  };
  std::uint32_t port = 0;
  std::uint32_t request_bytes = 0;  // follow
  Kind kind = round_trips;
  std::uint32_t padding = 0;
  std::uint64_t count = 0;
};

}  // namespace anchorhold::vsock::testing
