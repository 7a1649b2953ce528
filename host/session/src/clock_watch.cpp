#include "clock_watch.h"

#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace anchorhold::session {
namespace {

// A timer that never expires but is cancelled when the clock jumps, which includes waking from sleep
// (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
bool arm(int timer) {
  itimerspec never{};
  never.it_value.tv_sec = (std::int64_t{1} << 33);  // the year 2242
  return timerfd_settime(timer, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, nullptr) == 0;
}

}  // namespace

Result<std::unique_ptr<ClockWatch>> ClockWatch::start(std::function<void()> changed) {
  UniqueFd timer(timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer || !arm(timer.get())) return fail_errno(errno, "watching the clock");
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return fail_errno(errno, "watching the clock");
  return std::unique_ptr<ClockWatch>(new ClockWatch(std::move(timer), std::move(stop), std::move(changed)));
}

ClockWatch::ClockWatch(UniqueFd timer, UniqueFd stop, std::function<void()> changed)
    : timer_(std::move(timer)),
      stop_(std::move(stop)),
      changed_(std::move(changed)),
      thread_([this] { watch(); }) {}

ClockWatch::~ClockWatch() {
  std::uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void ClockWatch::watch() {
  for (;;) {
    pollfd waited[2] = {{timer_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(waited, 2, -1) < 0) continue;
    if (waited[1].revents != 0) return;
    std::uint64_t expirations = 0;
    if (read(timer_.get(), &expirations, sizeof expirations) < 0 && errno == ECANCELED) {
      arm(timer_.get());
      changed_();
    }
  }
}

}  // namespace anchorhold::session
