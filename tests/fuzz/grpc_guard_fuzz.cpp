// The bytes of a guest's gRPC connection: whatever they are, the verdict is the same in every cut.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "grpc_guard.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using anchorhold::vsock::GrpcGuard;
  if (size < 1) return 0;
  std::size_t step = 1 + data[0] % 32;
  auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  GrpcGuard whole(1000), pieces(1000);
  auto verdict = whole.inspect(bytes);
  std::string piecewise;
  for (auto rest = bytes; !rest.empty() && piecewise.empty();
       rest = rest.subspan(std::min(step, rest.size())))
    piecewise = pieces.inspect(rest.first(std::min(step, rest.size())));
  if (verdict != piecewise) std::abort();
  return 0;
}
