// What anchorhold-ledger says comes from a process that looks at hostile files and may have been taken over:
// whatever it says is refused, or is the same after a round trip.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "review_wire.h"

namespace {

using namespace anchorhold::mounts;

template <typename Outcome, typename Parts>
void same_again(const Outcome& outcome, Parts parts) {
  Outcome again;
  std::string lines = parts(outcome);
  std::string_view left = lines;
  bool ended = false;
  while (!left.empty()) {
    auto end = left.find('\n');
    if (end == std::string_view::npos || ended) std::abort();
    auto last = decode_line(left.substr(0, end), again);
    if (!last) std::abort();
    ended = *last;
    left.remove_prefix(end + 1);
  }
  if (!ended || parts(again) != lines) std::abort();
}

template <typename Outcome, typename Parts>
void decode_all(std::string_view text, Parts parts) {
  Outcome outcome;
  while (!text.empty()) {
    auto end = text.find('\n');
    auto last = decode_line(text.substr(0, end), outcome);
    if (!last || *last || end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  same_again(outcome, parts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  decode_all<Review>(text, [](const Review& review) {
    std::string lines;
    for (const auto& change : review.changes) lines += encode(change);
    for (const auto& undo : review.undos) lines += encode(undo);
    return lines + encode_end(review);
  });
  decode_all<UndoOutcome>(text, [](const UndoOutcome& outcome) {
    std::string lines;
    for (const auto& step : outcome.steps) lines += encode(step);
    for (const auto& refusal : outcome.refused) lines += encode(refusal);
    return lines + encode_end(outcome);
  });
  return 0;
}
