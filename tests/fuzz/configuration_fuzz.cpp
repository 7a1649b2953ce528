// The configuration file, whatever is in it: read whole or refused with a reason. And the file of answers:
// what is written into it, or taken out of it, leaves what was meant.
#include <cstdint>
#include <cstdlib>

#include "policy/answers.h"
#include "policy/configuration.h"

using namespace anchorhold;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto result = policy::parse_configuration(text, "config.toml");
  if (!result && result.error().message.empty()) std::abort();
  auto rules = policy::parse_answers(text);
  if (!rules) return 0;
  for (const auto& rule : *rules) {
    auto forgotten = policy::without_answers(text, rule.source);
    if (!forgotten) continue;
    auto left = policy::parse_answers(forgotten->text);
    if (!left || left->size() + forgotten->rules.size() > rules->size()) std::abort();
    auto back = policy::with_answer(forgotten->text, rule, "again");
    if (!back) continue;
    auto again = policy::parse_answers(*back);
    if (!again || again->empty() || again->back().host != rule.host || again->back().ports != rule.ports)
      std::abort();
  }
  return 0;
}
