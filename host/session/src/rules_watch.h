// Keeps the person's rules as they are in their files now. What cannot be read or understood is told as such,
// and so is its end; what is just being written counts when its writer has closed it, or denies when that
// lasts.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "egress/upstream.h"
#include "file_watch.h"
#include "policy/person_rules.h"

namespace anchorhold::session {

class RulesWatch {
 public:
  struct Hooks {
    // Called one after another, never two at once, at each look that finds no other fault than before:
    // whether anything is different is for them to see.
    std::function<void(const policy::PersonRules&)> good;
    std::function<void(const Error&)> broken;
    // What the files of extra_ca hold is part of what is read.
    std::function<Status(const policy::PersonRules&)> check;
  };
  // `also`: files whose change is a reason to look, too.
  static Result<std::unique_ptr<RulesWatch>> start(std::filesystem::path folder, Hooks hooks,
                                                   std::vector<std::filesystem::path> also = {});
  ~RulesWatch();

  // Looks now; what it finds is told before this returns. Not from a hook.
  void refresh();

 private:
  RulesWatch(std::filesystem::path folder, Hooks hooks, std::vector<std::filesystem::path> also)
      : folder_(std::move(folder)), hooks_(std::move(hooks)), also_(std::move(also)) {}
  void run();
  // How long it may be until the next look.
  std::chrono::milliseconds look();
  std::vector<std::filesystem::path> files();

  const std::filesystem::path folder_;
  const Hooks hooks_;
  const std::vector<std::filesystem::path> also_;
  UniqueFd stop_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::filesystem::path> certificates_;
  std::optional<std::chrono::steady_clock::time_point> written_since_;
  std::string told_;  // the fault that was told last; empty: none
  std::thread thread_;
};

}  // namespace anchorhold::session
