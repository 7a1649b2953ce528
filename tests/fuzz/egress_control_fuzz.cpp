// What the egress process says to the host, and the host to it: any bytes are a message or refused, and what
// was understood is written again as something that is understood.
#include <cstdint>
#include <cstdlib>

#include "egress/control.h"

using namespace anchorhold::egress;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (auto message = parse_control(bytes)) {
    if (encode_control(*message) != bytes) std::abort();
  }
  if (auto event = parse_event(2, bytes); event && !parse_event(2, encode_event(*event))) std::abort();
  if (auto question = parse_question(1, bytes); question && !parse_question(1, encode_question(*question)))
    std::abort();
  if (auto request = parse_secret_request(1, bytes);
      request && !parse_secret_request(1, encode_secret_request(*request)))
    std::abort();
  if (auto configuration = parse_configuration_message(bytes);
      configuration && !parse_configuration_message(encode_configuration(*configuration)))
    std::abort();
  return 0;
}
