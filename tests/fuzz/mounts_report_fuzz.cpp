// Reports come from processes that may have been taken over, answers go to them: whatever is sent is refused
// or is the same after a round trip.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "mounts/report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto message = std::as_bytes(std::span(data, size));
  if (auto answer = anchorhold::mounts::parse_answer(message)) {
    std::string same = anchorhold::mounts::encode_answer(*answer);
    if (!std::equal(same.begin(), same.end(), reinterpret_cast<const char*>(data))) std::abort();
  }
  auto report = anchorhold::mounts::parse_report(message);
  if (!report) return 0;
  std::string again = anchorhold::mounts::encode_report(*report);
  if (again.size() != size || !std::equal(again.begin(), again.end(), reinterpret_cast<const char*>(data)))
    std::abort();
  return 0;
}
