#include "reader/reader_device.h"

#include <utility>

namespace anchorhold::mounts {
namespace {

constexpr std::size_t max_batch = 64;
// To interrupt the guest costs it more than a request. So what nobody waits for is told with what somebody
// does, in numbers, or a little later.
constexpr std::size_t most_untold = 32;
constexpr std::chrono::milliseconds untold_time{5};
constexpr int most_rounds = 64;

}  // namespace

ReaderDevice::ReaderDevice(vsock::EventLoop& loop, Dispatcher& dispatcher, std::size_t threads)
    : loop_(loop), dispatcher_(dispatcher), batch_(max_batch) {
  loop_.at_turn_end([this] { return turn(); });
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ReaderDevice::~ReaderDevice() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

Status ReaderDevice::serve(UniqueFd connection) {
  back_end_ = ANCHORHOLD_TRY(vsock::VhostUserBackEnd::create(loop_, std::move(connection), *this));
  return {};
}

void ReaderDevice::ended(Status cause) {
  loop_.stop(std::move(cause));
}

void ReaderDevice::fault(Error cause) {
  loop_.post([this, cause = std::move(cause)] { back_end_->fault(cause); });
}

// A hint only: what it says is read again, and checked, when the request is served.
std::uint32_t ReaderDevice::opcode_of(const vsock::DescriptorChain& chain) const {
  fuse_in_header header{};
  vsock::copy_from(chain.readable, 0, std::as_writable_bytes(std::span(&header, 1)));
  return header.opcode;
}

void ReaderDevice::stopping(std::size_t queue) {
  running_[queue] = false;
  back_end_->queue(queue).notify();
}

void ReaderDevice::hand_on(std::size_t queue, vsock::DescriptorChain& chain) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({queue, std::move(chain)});
    chain = {};
    if (!spare_.empty()) {
      chain = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  changed_.notify_one();
}

bool ReaderDevice::drain(std::size_t index) {
  auto& queue = back_end_->queue(index);
  std::size_t count = 0;
  while (count < max_batch) {
    auto popped = queue.pop(batch_[count]);
    if (!popped) {
      faulted_ = true;
      fault(popped.error());
      break;
    }
    if (!*popped) break;
    ++count;
  }
  if (count == 0) return false;
  // To wake another thread takes longer than most requests do: what is short is served here and now, and so
  // is the last of the others.
  here_.clear();
  std::size_t awaited = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto opcode = opcode_of(batch_[i]);
    auto takes = Dispatcher::duration(opcode);
    if (takes == Dispatcher::Duration::unknown && i + 1 < count) takes = Dispatcher::Duration::long_;
    if (index != 0 && takes == Dispatcher::Duration::long_) {
      hand_on(index, batch_[i]);
      continue;
    }
    here_.push_back(i);
    if (Dispatcher::is_awaited(opcode)) ++awaited;
  }
  {
    KeeperClient::Hurry hurry;
    for (std::size_t i : here_)
      if (!serve_chain(index, batch_[i], scratch_)) hand_on(index, batch_[i]);
  }
  if (awaited > 0)
    queue.notify();
  else if (std::exchange(untold_, untold_ + here_.size()) == 0)
    untold_since_ = std::chrono::steady_clock::now();
  return true;
}

void ReaderDevice::notify_all() {
  untold_ = 0;
  for (std::size_t i = 0; i < queues; ++i)
    if (running_[i]) back_end_->queue(i).notify();
}

bool ReaderDevice::is_time_to_tell() const {
  return untold_ >= most_untold || std::chrono::steady_clock::now() - untold_since_ >= untold_time;
}

bool ReaderDevice::turn() {
  if (!back_end_) return false;
  for (int round = 0; round < most_rounds; ++round) {
    bool more = false;
    for (std::size_t i = 0; i < queues && !faulted_; ++i)
      if (running_[i] && drain(i)) more = true;
    if (faulted_) return false;
    if (untold_ > 0 && is_time_to_tell()) notify_all();
    if (more) continue;
    for (std::size_t i = 0; i < queues; ++i)
      if (running_[i] && back_end_->queue(i).rearm_kicks()) more = true;
    if (more) continue;
    if (untold_ > 0) loop_.wait_at_most(untold_time);
    return false;
  }
  return true;
}

bool ReaderDevice::serve_chain(std::size_t index, const vsock::DescriptorChain& chain, Scratch& scratch) {
  RequestBuffers buffers{chain.readable, chain.readable_bytes, chain.writable, chain.writable_bytes};
  auto written = dispatcher_.serve(buffers, scratch);
  if (written && !*written) return false;
  back_end_->queue(index).push(chain, written ? **written : 0);
  if (!written) fault(written.error());
  return true;
}

void ReaderDevice::work() {
  Scratch scratch;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    (void)serve_chain(job.queue, job.chain, scratch);
    back_end_->queue(job.queue).notify();
    job.chain.clear();
    lock.lock();
    if (spare_.size() < max_batch) spare_.push_back(std::move(job.chain));
  }
}

}  // namespace anchorhold::mounts
