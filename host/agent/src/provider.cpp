#include "agent/provider.h"

#include <fmt/format.h>

#include "agent/keys.h"
#include "anthropic.h"
#include "openai.h"
#include "scripted.h"

namespace anchorhold::agent {
namespace {

// A key in a file was meant for this server; one in the environment is not sent where anybody on the way can
// read it.
Result<Secret> key_for(const ProviderSpec& spec, const std::string& variable) {
  bool open_network = false;
  if (!spec.base_url.empty()) {
    auto url = ANCHORHOLD_TRY(model_address(spec.base_url));
    open_network = url.scheme == "http" && !is_loopback(url.host);
  }
  if (!spec.key_file.empty()) {
    auto key = ANCHORHOLD_TRY(read_key_file(spec.key_file));
    if (open_network)
      return fail(ErrorCode::failed_precondition,
                  fmt::format("the key would travel to {} unencrypted", spec.base_url),
                  "Use https, or leave out the key file.");
    return key;
  }
  Secret key = open_network ? Secret() : environment_key(variable);
  if (key.empty() && spec.base_url.empty())
    return fail(
        ErrorCode::failed_precondition, fmt::format("there is no key for {}", spec.model),
        fmt::format("Set {} or give --key-file FILE; a local server needs --base-url URL.", variable));
  return key;
}

}  // namespace

Result<std::unique_ptr<Provider>> make_provider(const ProviderSpec& spec) {
  auto colon = spec.model.find(':');
  std::string wire = spec.model.substr(0, colon);
  std::string name = colon == std::string::npos ? std::string() : spec.model.substr(colon + 1);
  bool known = wire == "anthropic" || wire == "openai" || wire == "scripted";
  if (!known || name.empty())
    return fail(ErrorCode::invalid_argument, fmt::format("\"{}\" names no model", spec.model),
                "Give anthropic:NAME, openai:NAME or scripted:FILE.");
  if (wire == "scripted") return ANCHORHOLD_TRY(ScriptedProvider::load(name));
  Secret key = ANCHORHOLD_TRY(key_for(spec, wire == "anthropic" ? "ANTHROPIC_API_KEY" : "OPENAI_API_KEY"));
  if (wire == "anthropic")
    return AnthropicProvider::create(std::move(name), spec.base_url, std::move(key), spec.context_tokens);
  return OpenAiProvider::create(std::move(name), spec.base_url, std::move(key), spec.context_tokens);
}

}  // namespace anchorhold::agent
