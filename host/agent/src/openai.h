// Chat completions, as the vendor and as local servers speak them.
#pragma once

#include "agent/provider.h"
#include "base/secret.h"
#include "json.h"
#include "retry.h"

namespace anchorhold::agent {

class OpenAiProvider : public Provider {
 public:
  static Result<std::unique_ptr<Provider>> create(std::string model, std::string base_url, Secret key,
                                                  std::uint64_t context_tokens, RetryPolicy retries = {});
  Result<Turn> stream(const TurnRequest& request, TurnObserver& observer, std::stop_token stop) override;
  ModelLimits limits() const override { return limits_; }
  std::string name() const override { return "openai"; }
  std::string model() const override { return model_; }

 private:
  OpenAiProvider(std::string model, std::string url, std::string host, Secret key, ModelLimits limits,
                 bool vendor, RetryPolicy retries)
      : model_(std::move(model)),
        url_(std::move(url)),
        host_(std::move(host)),
        key_(std::move(key)),
        limits_(limits),
        vendor_(vendor),
        retries_(retries) {}

  std::string model_, url_, host_;
  Secret key_;
  ModelLimits limits_;
  bool vendor_;
  RetryPolicy retries_;
};

// The request's body; pure. `vendor`: the newer name of the output limit, which local servers do not know.
Json openai_body(const TurnRequest& request, const std::string& model, bool vendor);

}  // namespace anchorhold::agent
