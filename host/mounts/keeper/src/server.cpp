#include "server.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <sched.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace anchorhold::mounts {
namespace {

// Of one client, at the same time.
constexpr int max_requests = 4;
constexpr std::size_t max_message_bytes = sizeof(RequestHeader) + max_payload_bytes;

// Who asks waits for the answer, so its processor is free meanwhile, and to wake a thread on another one
// takes longer than most requests do. So each thread stays on the processor that it is asked from.
class Place {
 public:
  void follow(std::uint32_t processor) {
    if (processor == 0 || processor > CPU_SETSIZE || processor == mine_) return;
    // Not at once: moving costs as much as is gained by some requests.
    if (std::exchange(wanted_, processor) != processor) times_ = 0;
    if (++times_ < enough_times) return;
    mine_ = processor;
    times_ = 0;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor - 1, &set);
    (void)sched_setaffinity(0, sizeof set, &set);  // where it may not be there, it stays where it is
  }

 private:
  static constexpr int enough_times = 3;
  std::uint32_t mine_ = 0, wanted_ = 0;
  int times_ = 0;
};

// Each client has a thread that waits for its messages, and one more whenever all of its threads are at work.
class Server {
 public:
  Server(Keeper& keeper, std::vector<UniqueFd> clients) : keeper_(keeper) {
    for (auto& socket : clients) clients_.push_back({std::move(socket)});
  }

  Status run() {
    std::unique_lock lock(mutex_);
    for (auto& client : clients_) add_thread(client);
    ended_.wait(lock, [this] { return running_ == 0; });
    lock.unlock();
    for (auto& thread : threads_) thread.join();
    return {};
  }

 private:
  struct Client {
    UniqueFd socket;
    int threads = 0;
    int waiting = 0;
    bool ended = false;
  };

  // With the mutex held. A client that has a thread can do without another.
  void add_thread(Client& client) {
    try {
      threads_.emplace_back([this, &client] { work(client); });
    } catch (const std::system_error&) {
      if (client.threads == 0) shutdown(client.socket.get(), SHUT_RDWR);
      return;
    }
    ++running_;
    ++client.threads;
    ++client.waiting;
  }

  void work(Client& client) {
    // Not filled: of what is never used, the kernel gives no page.
    std::unique_ptr<std::byte[]> buffer(new std::byte[max_message_bytes]);
    Place place;
    while (serve_one(client, std::span(buffer.get(), max_message_bytes), place)) {
      std::lock_guard lock(mutex_);
      ++client.waiting;
    }
    // Shut, but its number is kept: others may still be answering on it.
    shutdown(client.socket.get(), SHUT_RDWR);
    std::lock_guard lock(mutex_);
    client.ended = true;
    if (--running_ == 0) ended_.notify_all();
  }

  // False when the client has ended, or has to.
  bool serve_one(Client& client, std::span<std::byte> buffer, Place& place) {
    int socket = client.socket.get();
    auto received = receive_with_descriptors(socket, buffer);
    {
      std::lock_guard lock(mutex_);
      bool last = --client.waiting == 0;
      if (client.ended || (received && received->size == 0)) return false;
      if (received && last && client.threads < max_requests) add_thread(client);
    }
    if (!received) {
      keeper_.report_malformed(received.error());
      return false;
    }
    auto request = parse_request(buffer.first(received->size), received->descriptors.size());
    if (!request) {
      keeper_.report_malformed(request.error());
      return false;
    }
    Answer answer = keeper_.handle(*request, received->descriptors);
    int passed = answer.descriptor.get();
    auto sent = send_with_descriptors(socket, std::as_bytes(std::span(&answer.reply, 1)),
                                      std::span(&passed, answer.descriptor ? 1 : 0));
    // Whoever does not take its answers is gone: the next receive says so.
    (void)sent;
    place.follow(request->header.processor);
    return true;
  }

  Keeper& keeper_;
  std::mutex mutex_;
  std::list<Client> clients_;
  std::list<std::thread> threads_;
  int running_ = 0;
  std::condition_variable ended_;
};

}  // namespace

Status serve_clients(Keeper& keeper, std::vector<UniqueFd> clients) {
  return Server(keeper, std::move(clients)).run();
}

}  // namespace anchorhold::mounts
