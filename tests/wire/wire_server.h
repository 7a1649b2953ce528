// The test server as a process of its own, and what is heard while a turn arrives.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/provider.h"
#include "base/process.h"
#include "json.h"
#include "retry.h"

namespace anchorhold::agent {

class HeardTurn : public TurnObserver {
 public:
  void text_delta(std::string_view part) override {
    text += part;
    if (on_text) on_text();
  }
  void thinking_delta(std::string_view part) override { thinking += part; }
  void tool_use_began(std::string_view name) override { tools.emplace_back(name); }
  void block_done(const Block&) override { ++blocks; }
  void restarted(std::string_view reason, std::chrono::milliseconds delay) override {
    restarts.emplace_back(reason);
    delays.push_back(delay);
    text.clear();
  }

  std::string text, thinking;
  std::vector<std::string> tools, restarts;
  std::vector<std::chrono::milliseconds> delays;
  std::size_t blocks = 0;
  std::function<void()> on_text;
};

class WireTest : public testing::Test {
 protected:
  void SetUp() override;
  // "http://127.0.0.1:PORT", with /splitN when given.
  std::string url(unsigned split = 0) const;
  // What the server last got for this model: {count, headers, body}.
  Json seen(const std::string& model) const;

  // Quick, where the server does not say how long to wait.
  RetryPolicy retries{5, std::chrono::milliseconds(1), std::chrono::milliseconds(2),
                      std::chrono::minutes(15)};
  TurnRequest request{
      "Be good.", {{Role::user, {TextBlock{"hi", {}}}}}, {{"shell", "runs", R"({"type":"object"})"}}, 100};

 private:
  std::optional<Child> child_;
  UniqueFd lifeline_;  // the server ends with it
  int port_ = 0;
};

inline const std::string test_key = "sk-test-0123456789";

}  // namespace anchorhold::agent
