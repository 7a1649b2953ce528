// Chunked bodies, read at once and in pieces: the same content, or the same refusal.
#include <cstdint>
#include <cstdlib>

#include "egress/body.h"

using namespace anchorhold::egress;

namespace {

struct Read {
  bool refused = false, over = false;
  std::string content;
};

Read read(std::string_view bytes, std::size_t piece) {
  ChunkedReader reader;
  Read result;
  std::string waiting;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    waiting += bytes.substr(at, piece);
    for (;;) {
      auto step = reader.next(waiting);
      if (!step) {
        result.refused = true;
        return result;
      }
      if (step->consumed > waiting.size()) std::abort();
      result.content += step->data;
      waiting.erase(0, step->consumed);
      result.over = step->kind == ChunkedReader::Step::Kind::done;
      if (step->kind != ChunkedReader::Step::Kind::data) break;
    }
    if (result.over) return result;
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Read whole = read(bytes, bytes.size() + 1), pieces = read(bytes, data[0] % 7 + 1);
  if (whole.over != pieces.over) std::abort();
  if (whole.over && whole.content != pieces.content) std::abort();
  auto refused = [&](std::size_t piece) {
    auto watch = request_filter({}, {"url"});
    std::string passed;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      if (!watch->pass(bytes.substr(at, piece), passed)) return true;
    return false;
  };
  if (refused(bytes.size() + 1) != refused(data[0] % 7 + 1)) std::abort();
  const std::string secret = "secret-secret";
  auto scrub = scrub_secrets({secret});
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += data[0] % 7 + 1)
    (void)scrub->pass(bytes.substr(at, data[0] % 7 + 1), out);
  (void)scrub->finish(out);
  if (out.size() != bytes.size() || out.find(secret) != std::string::npos) std::abort();
  return 0;
}
