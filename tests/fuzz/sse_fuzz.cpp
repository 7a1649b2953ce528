// Server-sent events: any bytes, in any pieces, give the same events, within the limit.
#include <cstdlib>
#include <string>
#include <vector>

#include "sse.h"

using anchorhold::Status;
using anchorhold::agent::SseEvent;
using anchorhold::agent::SseParser;

namespace {

constexpr std::size_t limit = 4096;

std::vector<std::string> events_of(std::string_view bytes, std::size_t piece, bool& good) {
  std::vector<std::string> events;
  SseParser parser(
      [&](const SseEvent& event) -> Status {
        if (event.data.size() > limit) std::abort();
        events.push_back(event.name + '\0' + event.data);
        return {};
      },
      limit);
  for (std::size_t at = 0; good && at < bytes.size(); at += piece)
    good = parser.feed(bytes.substr(at, piece)).has_value();
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  bool whole_good = true, pieces_good = true;
  auto whole = events_of(bytes, size + 1, whole_good);
  auto pieces = events_of(bytes, 1, pieces_good);
  if (whole_good != pieces_good || whole != pieces) std::abort();
  return 0;
}
