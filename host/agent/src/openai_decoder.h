// A chat completion, streamed or whole, as a turn. Source:
// https://platform.openai.com/docs/api-reference/chat-streaming; and what Ollama, llama.cpp and LM Studio
// make of it: calls without ids or index, whole calls in one chunk, arguments that are an object or no JSON
// at all, no [DONE], no finish_reason, reasoning under several names.
#pragma once

#include <functional>

#include "json.h"
#include "sse.h"
#include "wire.h"

namespace anchorhold::agent {

class OpenAiDecoder : public TurnDecoder {
 public:
  enum class Form { events, whole };  // text/event-stream, or one JSON object
  OpenAiDecoder(TurnObserver& observer, Form form);
  Status feed(std::string_view bytes) override;
  Result<Turn> finish() override;

 private:
  struct Call {
    std::uint64_t index = 0;
    bool has_index = false;
    std::string id, name, arguments;
  };
  Status on_event(const SseEvent& event);
  Status on_chunk(const Json& chunk);
  Status on_choice(const Json& choice);
  Status on_delta(const Json& delta);
  Status on_call(const Json& piece);
  Call* call_for(const Json& piece);
  void read_usage(const Json& usage);
  Status grow(std::size_t bytes);

  TurnObserver& observer_;
  Form form_;
  SseParser sse_{[this](const SseEvent& event) { return on_event(event); }};
  std::string whole_;
  std::string text_;
  std::string reasoning_;
  std::string reasoning_field_;  // the name it came under
  std::vector<Call> calls_;
  std::size_t bytes_ = 0;
  Turn turn_;
  bool has_finish_reason_ = false;
  bool done_ = false;
  bool refused_ = false;
};

// The error of an answer or of a chunk: {"error": {"message", "type", "code"}}, {"error": "text"},
// {"message": "text"}.
struct OpenAiError {
  std::string message;
  std::string code;
};
OpenAiError openai_error(const Json& body);
bool says_window_full(const OpenAiError& error);

}  // namespace anchorhold::agent
