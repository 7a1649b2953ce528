#include "anthropic_decoder.h"
#include "model_stream_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::agent;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  TurnObserver nobody;
  AnthropicDecoder whole_decoder(nobody);
  auto whole = decode_in_pieces(whole_decoder, bytes, size + 1);
  check_blocks(whole);
  AnthropicDecoder pieces_decoder(nobody);
  check_same(whole, decode_in_pieces(pieces_decoder, bytes, 3));
  return 0;
}
