// The vhost-user-fs device (virtio 1.2 section 5.11): takes requests off the rings, has them served, gives
// them back. The loop's thread serves what is alone or short; what comes in numbers or may take long goes to
// a small pool of threads, so that one slow request keeps no other waiting.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "reader/dispatcher.h"
#include "vsock/event_loop.h"
#include "vsock/vhost_user.h"

namespace anchorhold::mounts {

class ReaderDevice : public vsock::VhostUserDevice {
 public:
  // One ring for urgent requests (forgets), the others for all else; the front end uses as many as it likes.
  static constexpr std::size_t queues = 9;

  // The loop runs for this device alone.
  ReaderDevice(vsock::EventLoop& loop, Dispatcher& dispatcher, std::size_t threads);
  ~ReaderDevice() override;

  // Serves this front end from now on; once, on the loop's thread. The loop ends with the connection.
  Status serve(UniqueFd connection);

  std::size_t queue_count() const override { return queues; }
  void started(std::size_t queue) override { running_[queue] = true; }
  void stopping(std::size_t queue) override;
  // All rings are looked at before the loop waits again.
  void kicked(std::size_t) override {}
  void ended(Status cause) override;

 private:
  struct Job {
    std::size_t queue;
    vsock::DescriptorChain chain;
  };
  // Serves what is there. False: whatever comes next kicks. True: there is more, and it is time to look at
  // what else the loop waits for.
  bool turn();
  // False: there was nothing.
  bool drain(std::size_t queue);
  void notify_all();
  bool is_time_to_tell() const;
  std::uint32_t opcode_of(const vsock::DescriptorChain& chain) const;
  void hand_on(std::size_t queue, vsock::DescriptorChain& chain);
  // False: it has to be served by a thread that may wait.
  bool serve_chain(std::size_t queue, const vsock::DescriptorChain& chain, Scratch& scratch);
  void fault(Error cause);
  void work();

  vsock::EventLoop& loop_;
  Dispatcher& dispatcher_;
  std::unique_ptr<vsock::VhostUserBackEnd> back_end_;
  // The loop thread's.
  Scratch scratch_;
  std::vector<vsock::DescriptorChain> batch_;
  std::vector<std::size_t> here_;  // those of the batch that are served at once
  std::array<bool, queues> running_{};
  std::size_t untold_ = 0;  // what nobody waits for, given back since the guest was last told
  std::chrono::steady_clock::time_point untold_since_{};
  bool faulted_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<vsock::DescriptorChain> spare_;  // chains whose memory can be used again
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace anchorhold::mounts
