// Asking the keeper. One object is one client connection.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "mounts/keeper_protocol.h"

namespace anchorhold::mounts {

struct KeeperAnswer {
  int error = 0;  // errno value; 0: done
  KeeperNumbers numbers{};
  UniqueFd descriptor{};  // of open_for_write and create
};

// Safe from any thread; every thread may have a request in flight. Needs recvmsg, sendmsg, futex of a seal,
// no thread.
class KeeperClient {
 public:
  explicit KeeperClient(UniqueFd socket) : socket_(std::move(socket)) {}

  // Blocks until the keeper answered. The request's id, payload_size and number of descriptors are filled in
  // here. When the keeper is gone or talks nonsense, the error is EIO, now and for ever.
  KeeperAnswer ask(RequestHeader request, std::span<const int> descriptors, std::string_view payload = {});

  // While it lives, what its thread asks is hurried: the error may be would_wait.
  class Hurry {
   public:
    Hurry() { hurried_ = true; }
    ~Hurry() { hurried_ = false; }
    Hurry(const Hurry&) = delete;
    Hurry& operator=(const Hurry&) = delete;
  };
  static bool is_hurried() { return hurried_; }

  bool broken() const;
  int descriptor() const { return socket_.get(); }

 private:
  struct Waiting;
  void receive_one();

  static thread_local bool hurried_;

  UniqueFd socket_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Waiting*> waiting_;
  std::uint64_t next_id_ = 1;
  bool receiving_ = false;  // one of the waiting threads receives for all
  bool broken_ = false;
};

}  // namespace anchorhold::mounts
