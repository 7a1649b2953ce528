// What a reader that was taken over tells the host about changes.
#include <cstdint>
#include <cstdlib>

#include "mounts/watch_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::mounts;
  auto message = std::span(reinterpret_cast<const std::byte*>(data), size);
  auto parsed = parse_watch_message(message);
  if (!parsed) return 0;
  auto again = encode_watch_message(*parsed);
  auto same = parse_watch_message(std::as_bytes(std::span(again)));
  if (!same || !(same->change == parsed->change) || same->number != parsed->number ||
      same->kind != parsed->kind)
    std::abort();
  if (parsed->kind != WatchMessage::Kind::change && !(parsed->change == HostChange{})) std::abort();
  for (const auto& path : {parsed->change.path, parsed->change.new_path})
    if (path.starts_with('/') || path.find("//") != path.npos || path.find('\0') != path.npos) std::abort();
  return 0;
}
