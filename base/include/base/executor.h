// A serial executor: tasks run one after another, in order, never two at once. Whoever owns state gives it
// one executor and touches the state only there. Tasks must not block; work that does belongs on a thread of
// its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"

namespace anchorhold {

class Executor {
 public:
  using Task = std::function<void()>;
  virtual ~Executor() = default;
  // Safe from any thread. After shutdown began, tasks are dropped.
  virtual void post(Task task) = 0;
  virtual void post_after(std::chrono::nanoseconds delay, Task task) = 0;
};

// One thread. The destructor finishes the task that runs, drops the rest, and joins; destroy it from another
// thread.
class SerialExecutor : public Executor {
 public:
  explicit SerialExecutor(const char* thread_name);
  ~SerialExecutor() override;
  void post(Task task) override;
  void post_after(std::chrono::nanoseconds delay, Task task) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// For tests: runs tasks when told, on the caller's thread, against a FakeClock.
class ManualExecutor : public Executor {
 public:
  explicit ManualExecutor(FakeClock& clock) : clock_(clock) {}
  void post(Task task) override { post_after(std::chrono::nanoseconds(0), std::move(task)); }
  void post_after(std::chrono::nanoseconds delay, Task task) override;
  // Runs what is due, including what those tasks post; returns how many ran.
  std::size_t run_due();
  // Steps the clock from one due time to the next, running each task at its time.
  void advance(std::chrono::nanoseconds by);

 private:
  struct Entry {
    MonotonicTime due;
    std::uint64_t order;
    Task task;
  };
  FakeClock& clock_;
  std::uint64_t next_order_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace anchorhold
