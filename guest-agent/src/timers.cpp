#include "timers.h"

#include <algorithm>
#include <cerrno>
#include <sys/timerfd.h>
#include <unistd.h>

namespace anchorhold::guest {

Result<std::unique_ptr<Timers>> Timers::create(vsock::EventLoop& loop) {
  std::unique_ptr<Timers> timers(new Timers);
  timers->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timers->timer_) return fail_errno(errno, "timerfd_create");
  timers->watch_ = ANCHORHOLD_TRY(loop.watch(timers->timer_.get(), vsock::ready::readable,
                                             [self = timers.get()](std::uint32_t) { self->run_due(); }));
  return timers;
}

Timers::Id Timers::after(std::chrono::nanoseconds delay, std::function<void()> task) {
  Id id = next_++;
  Time due = std::chrono::steady_clock::now() + std::max(delay, std::chrono::nanoseconds(0));
  tasks_.emplace(std::pair(due, id), std::move(task));
  times_.emplace(id, due);
  if (tasks_.begin()->first.second == id) arm();
  return id;
}

void Timers::cancel(Id& id) {
  auto found = times_.find(std::exchange(id, 0));
  if (found == times_.end()) return;
  tasks_.erase(std::pair(found->second, found->first));
  times_.erase(found);
}

void Timers::arm() {
  itimerspec when{};
  if (!tasks_.empty()) {
    auto left = std::max<std::chrono::nanoseconds>(
        tasks_.begin()->first.first - std::chrono::steady_clock::now(), std::chrono::nanoseconds(1));
    when.it_value.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
    when.it_value.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
  }
  timerfd_settime(timer_.get(), 0, &when, nullptr);
}

void Timers::run_due() {
  std::uint64_t count = 0;
  (void)!read(timer_.get(), &count, sizeof count);
  while (!tasks_.empty() && tasks_.begin()->first.first <= std::chrono::steady_clock::now()) {
    auto node = tasks_.extract(tasks_.begin());
    times_.erase(node.key().second);
    node.mapped()();
  }
  arm();
}

}  // namespace anchorhold::guest
