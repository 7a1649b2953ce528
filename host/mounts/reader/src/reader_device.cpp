#include "reader/reader_device.h"

namespace anchorhold::mounts {
namespace {

constexpr std::size_t max_batch = 64;

}  // namespace

ReaderDevice::ReaderDevice(vsock::EventLoop& loop, Dispatcher& dispatcher, std::size_t threads)
    : loop_(loop), dispatcher_(dispatcher), batch_(max_batch) {
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
bool ReaderDevice::may_take_long(const vsock::DescriptorChain& chain) const {
  fuse_in_header header{};
  vsock::copy_from(chain.readable, 0, std::as_writable_bytes(std::span(&header, 1)));
  return Dispatcher::may_take_long(header.opcode);
}

void ReaderDevice::drain(std::size_t index) {
  auto& queue = back_end_->queue(index);
  for (;;) {
    std::size_t count = 0;
    while (count < max_batch) {
      auto popped = queue.pop(batch_[count]);
      if (!popped) return fault(popped.error());
      if (!*popped) break;
      ++count;
    }
    if (count == 0) {
      if (!queue.rearm_kicks()) return;
      continue;
    }
    // One is served here and now: to wake another thread for it takes longer than most requests do.
    std::size_t handed_on = index == 0 ? 0 : may_take_long(batch_[count - 1]) ? count : count - 1;
    if (handed_on > 0) {
      std::lock_guard lock(mutex_);
      for (std::size_t i = 0; i < handed_on; ++i) {
        jobs_.push_back({index, std::move(batch_[i])});
        batch_[i] = {};
        if (!spare_.empty()) {
          batch_[i] = std::move(spare_.back());
          spare_.pop_back();
        }
      }
    }
    for (std::size_t i = 0; i < std::min(handed_on, threads_.size()); ++i) changed_.notify_one();
    for (std::size_t i = handed_on; i < count; ++i) serve_chain(index, batch_[i], scratch_);
    queue.notify();
  }
}

void ReaderDevice::serve_chain(std::size_t index, const vsock::DescriptorChain& chain, Scratch& scratch) {
  RequestBuffers buffers{chain.readable, chain.readable_bytes, chain.writable, chain.writable_bytes};
  auto written = dispatcher_.serve(buffers, scratch);
  back_end_->queue(index).push(chain, written ? *written : 0);
  if (!written) fault(written.error());
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
    serve_chain(job.queue, job.chain, scratch);
    back_end_->queue(job.queue).notify();
    job.chain.clear();
    lock.lock();
    if (spare_.size() < max_batch) spare_.push_back(std::move(job.chain));
  }
}

}  // namespace anchorhold::mounts
