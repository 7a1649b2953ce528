#include "vsock/event_loop.h"

#include <array>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace anchorhold::vsock {
namespace {

static_assert(ready::readable == EPOLLIN && ready::writable == EPOLLOUT && ready::error == EPOLLERR &&
              ready::hangup == EPOLLHUP && ready::peer_done == EPOLLRDHUP &&
              ready::edge == static_cast<std::uint32_t>(EPOLLET));

constexpr std::uint64_t wake_token = ~0ull;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "epoll_create1");
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno(errno, "eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = wake_token;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return fail_errno(errno, "epoll_ctl");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

EventLoop::~EventLoop() = default;

Result<EventLoop::Watch> EventLoop::watch(int fd, std::uint32_t events, Callback callback) {
  std::uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  epoll_event event{};
  event.events = events;
  event.data.u64 = (std::uint64_t{slots_[slot].generation} << 32) | slot;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    int error = errno;
    free_slots_.push_back(slot);
    return fail_errno(error, "watching a descriptor");
  }
  slots_[slot].callback = std::make_shared<Callback>(std::move(callback));
  return Watch(this, slot, fd);
}

void EventLoop::remove(std::uint32_t slot, int fd) {
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  // Events of this slot that were already fetched carry the old generation and are ignored.
  ++slots_[slot].generation;
  slots_[slot].callback.reset();
  free_slots_.push_back(slot);
}

Status EventLoop::run() {
  bool busy = false;
  std::array<epoll_event, 64> events;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (cause_) return std::move(*std::exchange(cause_, nullptr));
    }
    int wait = std::exchange(next_wait_, -1);
    int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), busy ? 0 : wait);
    if (count < 0 && errno != EINTR) return fail_errno(errno, "epoll_wait");
    for (int i = 0; i < count; ++i) {
      const auto& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == wake_token) {
        run_posted();
        continue;
      }
      auto slot = static_cast<std::uint32_t>(event.data.u64);
      if (slot >= slots_.size() || slots_[slot].generation != event.data.u64 >> 32) continue;
      auto callback = slots_[slot].callback;  // it may remove itself
      if (callback) (*callback)(event.events);
    }
    busy = turn_end_ && turn_end_();
  }
}

void EventLoop::run_posted() {
  std::uint64_t count;
  (void)!read(wake_.get(), &count, sizeof count);
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

void EventLoop::wake() {
  std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void EventLoop::stop(Status cause) {
  {
    std::lock_guard lock(mutex_);
    if (!cause_) cause_ = std::make_unique<Status>(std::move(cause));
  }
  wake();
}

void EventLoop::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  wake();
}

EventLoop::Watch::Watch(Watch&& other) noexcept
    : loop_(std::exchange(other.loop_, nullptr)), slot_(other.slot_), fd_(other.fd_) {}

EventLoop::Watch& EventLoop::Watch::operator=(Watch&& other) noexcept {
  std::swap(loop_, other.loop_);
  std::swap(slot_, other.slot_);
  std::swap(fd_, other.fd_);
  Watch old(std::move(other));
  return *this;
}

Status EventLoop::Watch::change(std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = (std::uint64_t{loop_->slots_[slot_].generation} << 32) | slot_;
  if (epoll_ctl(loop_->epoll_.get(), EPOLL_CTL_MOD, fd_, &event) != 0)
    return fail_errno(errno, "watching a descriptor");
  return {};
}

EventLoop::Watch::~Watch() {
  if (loop_) loop_->remove(slot_, fd_);
}

}  // namespace anchorhold::vsock
