// The wires' words for why a turn ended.
#pragma once

#include <string_view>

#include "agent/provider.h"

namespace anchorhold::agent {

// Messages API, "stop_reason".
StopReason stop_reason_from_anthropic(std::string_view word);
// Chat completions, "finish_reason", with the words other servers use.
StopReason stop_reason_from_openai(std::string_view word);

}  // namespace anchorhold::agent
