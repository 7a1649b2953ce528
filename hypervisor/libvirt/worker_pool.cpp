#include "libvirt/worker_pool.h"

namespace anchorhold::hypervisor {

WorkerPool::WorkerPool(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void WorkerPool::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void WorkerPool::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return !tasks_.empty() || (stopping_ && running_ == 0); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    --running_;
    if (stopping_ && running_ == 0) wake_.notify_all();
  }
}

void Strand::post(WorkerPool::Task task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (active_) return;
  active_ = true;
  pool_.post([self = shared_from_this()] { self->run_one(); });
}

void Strand::run_one() {
  WorkerPool::Task task;
  {
    std::lock_guard lock(mutex_);
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  task();
  task = nullptr;
  std::lock_guard lock(mutex_);
  if (tasks_.empty()) {
    active_ = false;
  } else {
    pool_.post([self = shared_from_this()] { self->run_one(); });
  }
}

}  // namespace anchorhold::hypervisor
