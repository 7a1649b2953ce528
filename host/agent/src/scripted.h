// A provider that replays a file: for demonstrations and tests without a network. The file is JSON,
// {"turns": [{"content": [blocks in the Messages API's form], "stop_reason": …}, …]}. In every string of a
// turn,
// {{last_result}} is replaced by the text of the latest tool result. Which turn comes next is read from the
// conversation, so a resumed task goes on where it was.
#pragma once

#include <filesystem>
#include <string_view>

#include "agent/provider.h"
#include "json.h"

namespace anchorhold::agent {

class ScriptedProvider : public Provider {
 public:
  static Result<std::unique_ptr<ScriptedProvider>> load(const std::filesystem::path& file);
  static Result<std::unique_ptr<ScriptedProvider>> parse(std::string_view text, std::string name);

  Result<Turn> stream(const TurnRequest& request, TurnObserver& observer, std::stop_token stop) override;
  ModelLimits limits() const override { return {1'000'000, 64'000}; }
  std::string name() const override { return "scripted"; }
  std::string model() const override { return name_; }

 private:
  ScriptedProvider(Json turns, std::string name) : turns_(std::move(turns)), name_(std::move(name)) {}
  Json turns_;
  std::string name_;
};

}  // namespace anchorhold::agent
