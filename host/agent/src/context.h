// Keeping the conversation within the model's window. The store keeps everything; what is sent may have old
// tool results and old tool arguments shortened. Shortening goes from the oldest on and in large steps, so
// that the beginning of the conversation stays the same from turn to turn, which is what prompt caches live
// on. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/message.h"
#include "agent/provider.h"

namespace anchorhold::agent {

// Results and arguments of calls numbered up to `through` are shortened. The n-th tool call of a conversation
// has number n.
std::vector<Message> shortened(const std::vector<Message>& messages, std::uint64_t through);

std::uint64_t count_calls(const std::vector<Message>& messages);

// Tokens are estimated from bytes, and the estimate is corrected by what the server counted.
class TokenEstimate {
 public:
  std::uint64_t of(const TurnRequest& request) const;
  void correct(const TurnRequest& request, std::uint64_t counted);

 private:
  double tokens_per_byte_ = 0.3;
};

// What may be sent so that the answer still fits.
std::uint64_t input_budget(const ModelLimits& limits);

// The smallest `through` not below the given one for which the request fits; when some more must be
// shortened, as much as brings it to half of the budget. Nothing: it cannot be made to fit.
struct Fit {
  std::uint64_t through;
  TurnRequest request;
};
std::optional<Fit> fit(const TurnRequest& whole, std::uint64_t through, std::uint64_t budget,
                       const TokenEstimate& estimate);

}  // namespace anchorhold::agent
