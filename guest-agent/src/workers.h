// A few threads for what may block: starting programs, mounting shares. Bounded, so that a hundred commands
// at once cost a hundred queue entries, not a hundred threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace anchorhold::guest {

class Workers {
 public:
  Workers(const char* name, unsigned count);
  // Finishes the jobs that run, drops the rest.
  ~Workers();
  void post(std::function<void()> job);

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace anchorhold::guest
