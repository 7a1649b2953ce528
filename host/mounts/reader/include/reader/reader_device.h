// The vhost-user-fs device (virtio 1.2 section 5.11): takes requests off the rings, has them served, gives
// them back. The loop's thread serves what is alone and short; what comes in numbers or may take long goes to
// a small pool of threads, so that one slow request keeps no other waiting.
#pragma once

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

  ReaderDevice(vsock::EventLoop& loop, Dispatcher& dispatcher, std::size_t threads);
  ~ReaderDevice() override;

  // Serves this front end from now on; once, on the loop's thread. The loop ends with the connection.
  Status serve(UniqueFd connection);

  std::size_t queue_count() const override { return queues; }
  void started(std::size_t queue) override { drain(queue); }
  void stopping(std::size_t) override {}
  void kicked(std::size_t queue) override { drain(queue); }
  void ended(Status cause) override;

 private:
  struct Job {
    std::size_t queue;
    vsock::DescriptorChain chain;
  };
  void drain(std::size_t queue);
  bool may_take_long(const vsock::DescriptorChain& chain) const;
  void serve_chain(std::size_t queue, const vsock::DescriptorChain& chain, Scratch& scratch);
  void fault(Error cause);
  void work();

  vsock::EventLoop& loop_;
  Dispatcher& dispatcher_;
  std::unique_ptr<vsock::VhostUserBackEnd> back_end_;
  Scratch scratch_;                            // the loop thread's
  std::vector<vsock::DescriptorChain> batch_;  // the loop thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<vsock::DescriptorChain> spare_;  // chains whose memory can be used again
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace anchorhold::mounts
