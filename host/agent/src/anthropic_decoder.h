// The Messages API's stream of events as a turn. Source:
// https://docs.anthropic.com/en/docs/build-with-claude/streaming. Unknown events are passed over; unknown
// blocks and deltas are carried, so that they can be sent back as they came.
#pragma once

#include <map>

#include "json.h"
#include "sse.h"
#include "wire.h"

namespace anchorhold::agent {

class AnthropicDecoder : public TurnDecoder {
 public:
  explicit AnthropicDecoder(TurnObserver& observer) : observer_(observer) {}
  Status feed(std::string_view bytes) override { return sse_.feed(bytes); }
  Result<Turn> finish() override;

 private:
  struct Partial {
    Json block;
    std::string input;  // tool arguments as they arrive
    bool has_input = false;
  };
  Status on_event(const SseEvent& event);
  Status start_block(const Json& event);
  Status add_delta(const Json& event);
  void add_unknown_delta(Json& block, const Json& delta);
  void read_usage(const Json& usage);
  Status grow(std::size_t bytes);
  static std::optional<Block> complete(Partial& partial);

  TurnObserver& observer_;
  SseParser sse_{[this](const SseEvent& event) { return on_event(event); }};
  std::map<std::uint64_t, Partial> blocks_;
  std::size_t bytes_ = 0;
  Turn turn_;
  bool has_stop_reason_ = false;
};

// The body of an error answer, or of an error event.
Error anthropic_error(const Json& body);

}  // namespace anchorhold::agent
