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

inline std::string shown(const Result<Turn>& turn) {
  return turn ? std::string(to_string(turn->stop_reason)) + blocks_to_json(turn->blocks)
              : "error: " + turn.error().message;
}

template <typename Decoder>
Result<Turn> decode_in_pieces(Decoder& decoder, std::string_view bytes, std::size_t piece) {
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    ANCHORHOLD_CHECK(decoder.feed(bytes.substr(at, piece)));
  return decoder.finish();
}

inline void check_blocks(const Result<Turn>& turn) {
  if (!turn) return;
  std::string json = blocks_to_json(turn->blocks);
  auto back = blocks_from_json(json);
  if (!back || blocks_to_json(*back) != json) std::abort();
}

}  // namespace anchorhold::agent
