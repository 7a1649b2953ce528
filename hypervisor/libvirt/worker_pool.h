// Threads for calls that block: libvirt's take up to seconds.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace anchorhold::hypervisor {

// post() is safe from any thread. The destructor runs what was posted, also by tasks still running, and
// joins; destroy it from a thread that is not its own.
class WorkerPool {
 public:
  using Task = std::function<void()>;
  explicit WorkerPool(unsigned threads);
  ~WorkerPool();
  void post(Task task);

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  unsigned running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Tasks of one machine: in order, never two at once, on whichever thread of the pool is free. The pool
// outlives it.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  explicit Strand(WorkerPool& pool) : pool_(pool) {}
  void post(WorkerPool::Task task);

 private:
  void run_one();
  WorkerPool& pool_;
  std::mutex mutex_;
  std::deque<WorkerPool::Task> tasks_;
  bool active_ = false;
};

}  // namespace anchorhold::hypervisor
