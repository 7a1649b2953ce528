#include "base/executor.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <pthread.h>
#include <thread>

namespace anchorhold {

struct SerialExecutor::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::multimap<MonotonicTime, Task> tasks;
  bool stopping = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      if (tasks.empty()) {
        changed.wait(lock);
        continue;
      }
      auto first = tasks.begin();
      if (auto due = first->first; due > std::chrono::steady_clock::now()) {
        changed.wait_until(lock, due);
        continue;
      }
      Task task = std::move(first->second);
      tasks.erase(first);
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }
};

SerialExecutor::SerialExecutor(const char* thread_name) : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  pthread_setname_np(state_->thread.native_handle(), thread_name);
}

SerialExecutor::~SerialExecutor() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void SerialExecutor::post(Task task) {
  post_after(std::chrono::nanoseconds(0), std::move(task));
}

void SerialExecutor::post_after(std::chrono::nanoseconds delay, Task task) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopping) return;
    state_->tasks.emplace(std::chrono::steady_clock::now() + delay, std::move(task));
  }
  state_->changed.notify_all();
}

void ManualExecutor::post_after(std::chrono::nanoseconds delay, Task task) {
  entries_.push_back({clock_.monotonic() + delay, next_order_++, std::move(task)});
}

std::size_t ManualExecutor::run_due() {
  std::size_t count = 0;
  for (;;) {
    auto next = std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.due, a.order) < std::tie(b.due, b.order);
    });
    if (next == entries_.end() || next->due > clock_.monotonic()) return count;
    Task task = std::move(next->task);
    entries_.erase(next);
    task();
    ++count;
  }
}

void ManualExecutor::advance(std::chrono::nanoseconds by) {
  MonotonicTime end = clock_.monotonic() + by;
  run_due();
  for (;;) {
    auto next = std::min_element(entries_.begin(), entries_.end(),
                                 [](const Entry& a, const Entry& b) { return a.due < b.due; });
    if (next == entries_.end() || next->due > end) break;
    clock_.advance(next->due - clock_.monotonic());
    run_due();
  }
  clock_.advance(end - clock_.monotonic());
}

}  // namespace anchorhold
