// Arguments that a model made up, against the schemas of all tools: what is accepted is an object of the
// declared shape.
#include <cstdint>
#include <cstdlib>

#include "agent/tools.h"
#include "json.h"
#include "message_json.h"
#include "schema.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::agent;
  static const auto specs = tool_specs();
  ToolUseBlock use;
  set_input(use, std::string_view(reinterpret_cast<const char*>(data), size));
  auto input = parse_json(use.input);
  if (use.malformed != (!input || !input->is_object())) std::abort();
  if (use.malformed) return 0;
  for (const auto& spec : specs) {
    auto schema = parse_json(spec.input_schema);
    auto fault = mismatch(*schema, *input);
    if (fault && fault->empty()) std::abort();
  }
  return 0;
}
