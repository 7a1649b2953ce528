// The bulk guard: many removals, replacements or first rewrites of old things within a short time are not
// what most wishes mean. When there are too many, the change that would be the next waits, and a person is
// asked. What the session made itself never counts.
//
// A "no", also the one that comes because nobody answered in time, holds until a whole window has passed
// without another try: a program that goes on trying does not ask again and again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_set>

#include "mounts/report.h"
#include "object.h"

namespace anchorhold::mounts {

struct BulkLimits {
  std::uint32_t changes = 200;  // of old things in one window; 0: no guard
  std::chrono::milliseconds window{60'000};
  std::chrono::milliseconds patience{60'000};  // how long a change waits for an answer
};

// Safe from any thread.
class BulkGuard {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Judgement { go_on, ask, refuse };

  BulkGuard(const BulkLimits& limits, Reporter& reporter) : limits_(limits), reporter_(reporter) {}

  // A change of something old is about to be made. go_on: it counts.
  Judgement judge(Time now);
  // The same for the content of a file, which counts at its first rewrite only.
  Judgement judge_rewrite(const Identity& file, Time now);
  // Blocks until the question is answered; whoever comes while one is asked waits for the same answer. True:
  // the change may be tried again.
  bool ask(std::string_view operation, const std::string& path);

  const BulkLimits& limits() const { return limits_; }

 private:
  Judgement judge_locked(Time now);

  const BulkLimits limits_;
  Reporter& reporter_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Time> counted_;  // at most limits_.changes
  std::unordered_set<Identity, IdentityHash> rewritten_;
  bool off_ = false;  // for the rest of the session
  bool refusing_ = false;
  Time last_try_{};  // while refusing
  bool asking_ = false;
  bool allowed_ = false;  // the last answer
  std::uint64_t questions_ = 0;
};

}  // namespace anchorhold::mounts
