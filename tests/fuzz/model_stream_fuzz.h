// What both wires' decoders must hold whatever arrives: the same turn however the bytes are cut, and blocks
// that survive the way to the store and back.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/message.h"
#include "wire.h"

namespace anchorhold::agent {

template <typename Decoder>
Result<Turn> decode_in_pieces(Decoder& decoder, std::string_view bytes, std::size_t piece) {
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    ANCHORHOLD_CHECK(decoder.feed(bytes.substr(at, piece)));
  return decoder.finish();
}

// Ids that a server left out are made at random, so the shape is compared.
inline void check_same(const Result<Turn>& one, const Result<Turn>& other) {
  if (one.has_value() != other.has_value()) std::abort();
  if (one && (one->stop_reason != other->stop_reason || one->blocks.size() != other->blocks.size()))
    std::abort();
  if (one && text_of(one->blocks) != text_of(other->blocks)) std::abort();
}

inline void check_blocks(const Result<Turn>& turn) {
  if (!turn) return;
  std::string json = blocks_to_json(turn->blocks);
  auto back = blocks_from_json(json);
  if (!back || blocks_to_json(*back) != json) std::abort();
}

}  // namespace anchorhold::agent
