// What both wires share: a request that is made again when that is worth while, and a decoder that turns the
// answer's bytes into a turn.
//
// A stream that breaks after content was shown is asked for again too. That is safe here: tools run only
// after a whole turn has arrived and is stored, and the observer is told that what it showed is void
// (restarted()).
#pragma once

#include <functional>
#include <memory>

#include "agent/provider.h"
#include "http.h"
#include "retry.h"

namespace anchorhold::agent {

// One answer. Errors: unavailable for what another try may mend (the stream broke, the server is overloaded),
// anything else is final.
class TurnDecoder {
 public:
  virtual ~TurnDecoder() = default;
  virtual Status feed(std::string_view bytes) = 0;
  // After the last byte.
  virtual Result<Turn> finish() = 0;
};

struct Wire {
  HttpRequest request;
  std::function<std::unique_ptr<TurnDecoder>(TurnObserver& observer, const HttpHead& head)> make_decoder;
  // A refusal by status: the server's message from its JSON, and whether it says that the window is full.
  struct Refusal {
    std::string message;
    bool window_full = false;
  };
  std::function<Refusal(std::string_view body)> read_refusal;
  std::string server;  // for messages: "the model's server at api.example"
};

Result<Turn> stream_turn(const Wire& wire, const RetryPolicy& policy, TurnObserver& observer,
                         std::stop_token stop);

// The most a turn may hold, over all its blocks.
inline constexpr std::size_t max_turn_bytes = 64u << 20;
inline constexpr std::size_t max_turn_blocks = 1024;

}  // namespace anchorhold::agent
