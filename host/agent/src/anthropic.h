// The Messages API. Source: https://docs.anthropic.com/en/api/messages.
#pragma once

#include "agent/provider.h"
#include "base/secret.h"
#include "json.h"
#include "retry.h"

namespace anchorhold::agent {

class AnthropicProvider : public Provider {
 public:
  // base_url empty: the vendor's; key may be empty.
  static Result<std::unique_ptr<Provider>> create(std::string model, std::string base_url, Secret key,
                                                  std::uint64_t context_tokens, RetryPolicy retries = {});
  Result<Turn> stream(const TurnRequest& request, TurnObserver& observer, std::stop_token stop) override;
  ModelLimits limits() const override { return limits_; }
  std::string name() const override { return "anthropic"; }
  std::string model() const override { return model_; }

 private:
  AnthropicProvider(std::string model, std::string url, std::string host, Secret key, ModelLimits limits,
                    RetryPolicy retries)
      : model_(std::move(model)),
        url_(std::move(url)),
        host_(std::move(host)),
        key_(std::move(key)),
        limits_(limits),
        retries_(retries) {}

  std::string model_, url_, host_;
  Secret key_;
  ModelLimits limits_;
  RetryPolicy retries_;
};

// The request's body; pure. Cache marks stand after the tools and the system text, and after the newest two
// messages of the person's side, so that each turn finds the turn before in the cache.
Json anthropic_body(const TurnRequest& request, const std::string& model, std::uint32_t max_tokens);

}  // namespace anchorhold::agent
