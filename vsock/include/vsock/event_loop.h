// One thread that waits for descriptors (epoll(7)): the heart of a sealed device process. Everything here
// belongs to the thread that calls run(), except stop() and post(), which any thread may call.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::vsock {

// What a descriptor is ready for; the values are those of poll(2) and epoll(7).
namespace ready {
inline constexpr std::uint32_t readable = 0x001;
inline constexpr std::uint32_t writable = 0x004;
inline constexpr std::uint32_t error = 0x008;       // always reported
inline constexpr std::uint32_t hangup = 0x010;      // always reported
inline constexpr std::uint32_t peer_done = 0x2000;  // the other side will send no more
inline constexpr std::uint32_t edge = 0x80000000;   // report changes only; for watch(), never reported
}  // namespace ready

class EventLoop {
 public:
  using Callback = std::function<void(std::uint32_t events)>;

  static Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();

  // A descriptor that is watched as long as this lives; destroy it before closing the descriptor. It may be
  // destroyed inside any callback, its own included.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept;
    Watch& operator=(Watch&& other) noexcept;
    ~Watch();
    explicit operator bool() const { return loop_ != nullptr; }
    // Other events from now on; with `edge`, what is ready already is reported once more.
    Status change(std::uint32_t events);

   private:
    friend class EventLoop;
    Watch(EventLoop* loop, std::uint32_t slot, int fd) : loop_(loop), slot_(slot), fd_(fd) {}
    EventLoop* loop_ = nullptr;
    std::uint32_t slot_ = 0;
    int fd_ = -1;
  };
  Result<Watch> watch(int fd, std::uint32_t events, Callback callback);

  // Called once after each turn's callbacks, before waiting again: the place for work that is worth batching.
  // While it returns true the loop does not block: it polls, runs what is ready, and calls it again.
  void at_turn_end(std::function<bool()> work) { turn_end_ = std::move(work); }

  // Of that work alone: the next wait ends after this time, also when nothing is ready.
  void wait_at_most(std::chrono::milliseconds time) { next_wait_ = static_cast<int>(time.count()); }

  // Runs until stop(); returns what stop() was given. The first cause given is the one that counts.
  Status run();
  void stop(Status cause);
  // The task runs on the loop's thread.
  void post(std::function<void()> task);

 private:
  struct Slot {
    std::uint32_t generation = 0;
    std::shared_ptr<Callback> callback;
  };
  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void remove(std::uint32_t slot, int fd);
  void run_posted();
  void wake();

  UniqueFd epoll_;
  UniqueFd wake_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::function<bool()> turn_end_;
  int next_wait_ = -1;
  std::mutex mutex_;  // guards the two below
  std::vector<std::function<void()>> posted_;
  std::unique_ptr<Status> cause_;
};

}  // namespace anchorhold::vsock
