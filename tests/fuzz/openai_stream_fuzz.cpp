#include "model_stream_fuzz.h"
#include "openai_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::agent;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  TurnObserver nobody;
  for (auto form : {OpenAiDecoder::Form::events, OpenAiDecoder::Form::whole}) {
    OpenAiDecoder whole_decoder(nobody, form);
    auto whole = decode_in_pieces(whole_decoder, bytes, size + 1);
    check_blocks(whole);
    OpenAiDecoder pieces_decoder(nobody, form);
    check_same(whole, decode_in_pieces(pieces_decoder, bytes, 3));
  }
  return 0;
}
