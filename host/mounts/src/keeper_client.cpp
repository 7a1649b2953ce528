#include "mounts/keeper_client.h"

#include <cerrno>
#include <cstring>
#include <sched.h>
#include <vector>

namespace anchorhold::mounts {
namespace {

KeeperAnswer broken_answer() {
  KeeperAnswer answer;
  answer.error = EIO;
  return answer;
}

}  // namespace

thread_local bool KeeperClient::hurried_ = false;

struct KeeperClient::Waiting {
  KeeperAnswer answer;
  bool done = false;
};

KeeperAnswer KeeperClient::ask(RequestHeader request, std::span<const int> descriptors,
                               std::string_view payload) {
  request.payload_size = static_cast<std::uint32_t>(payload.size());
  request.descriptors = static_cast<std::uint16_t>(descriptors.size());
  request.processor = static_cast<std::uint16_t>(sched_getcpu() + 1);
  request.hurried = hurried_;
  Waiting mine;
  std::unique_lock lock(mutex_);
  if (broken_) return broken_answer();
  request.id = next_id_++;
  waiting_[request.id] = &mine;
  lock.unlock();

  std::vector<std::byte> message(sizeof request + payload.size());
  std::memcpy(message.data(), &request, sizeof request);
  if (!payload.empty()) std::memcpy(message.data() + sizeof request, payload.data(), payload.size());
  auto sent = send_with_descriptors(socket_.get(), message, descriptors);

  lock.lock();
  if (!sent) broken_ = true;
  while (!mine.done && !broken_) {
    if (receiving_) {
      changed_.wait(lock);
      continue;
    }
    receiving_ = true;
    lock.unlock();
    receive_one();
    lock.lock();
    receiving_ = false;
    changed_.notify_all();
  }
  waiting_.erase(request.id);
  changed_.notify_all();
  if (!mine.done) return broken_answer();
  return std::move(mine.answer);
}

void KeeperClient::receive_one() {
  Reply reply;
  auto received = receive_with_descriptors(socket_.get(), std::as_writable_bytes(std::span(&reply, 1)));
  std::lock_guard lock(mutex_);
  if (!received || received->size != sizeof reply || reply.magic != keeper_magic ||
      received->descriptors.size() != reply.descriptors || reply.descriptors > 1) {
    broken_ = true;
    return;
  }
  auto found = waiting_.find(reply.id);
  if (found == waiting_.end() || found->second->done) {
    broken_ = true;
    return;
  }
  KeeperAnswer& answer = found->second->answer;
  answer.error = reply.error;
  answer.numbers = reply.numbers;
  if (!received->descriptors.empty()) answer.descriptor = std::move(received->descriptors.front());
  found->second->done = true;
}

bool KeeperClient::broken() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

}  // namespace anchorhold::mounts
