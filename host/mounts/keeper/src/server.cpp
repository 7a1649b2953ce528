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

// One thread of each client receives. What cannot take long it serves itself, and goes on: to wake another
// one, which has nothing at hand, takes longer. Before it serves anything else, another thread receives.
class Server {
 public:
  Server(Keeper& keeper, std::vector<UniqueFd> clients) : keeper_(keeper) {
    for (auto& socket : clients) clients_.emplace_back().socket = std::move(socket);
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
    int idle = 0;  // of them
    bool received_for = false;
    bool ended = false;
    std::condition_variable changed;
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
  }

  void work(Client& client) {
    // Not filled: of what is never used, the kernel gives no page.
    std::unique_ptr<std::byte[]> buffer(new std::byte[max_message_bytes]);
    Place place;
    while (begin_receiving(client))
      while (serve_one(client, std::span(buffer.get(), max_message_bytes), place)) {
      }
    std::lock_guard lock(mutex_);
    if (--running_ == 0) ended_.notify_all();
  }

  // False when the client has ended.
  bool begin_receiving(Client& client) {
    std::unique_lock lock(mutex_);
    ++client.idle;
    client.changed.wait(lock, [&] { return client.ended || !client.received_for; });
    --client.idle;
    if (client.ended) return false;
    client.received_for = true;
    return true;
  }

  void let_another_receive(Client& client) {
    std::lock_guard lock(mutex_);
    client.received_for = false;
    if (client.idle == 0 && client.threads < max_requests) add_thread(client);
    client.changed.notify_one();
  }

  void end(Client& client) {
    // Shut, but its number is kept: others may still be answering on it.
    shutdown(client.socket.get(), SHUT_RDWR);
    std::lock_guard lock(mutex_);
    client.ended = true;
    client.changed.notify_all();
  }

  // False when this thread receives no more for now.
  bool serve_one(Client& client, std::span<std::byte> buffer, Place& place) {
    int socket = client.socket.get();
    auto received = receive_with_descriptors(socket, buffer);
    auto request = received ? parse_request(buffer.first(received->size), received->descriptors.size())
                            : Result<Request>(fail(received.error()));
    if (!request) {
      if (!received || received->size > 0) keeper_.report_malformed(request.error());
      end(client);
      return false;
    }
    const bool hurried = request->header.hurried != 0;
    if (!hurried) let_another_receive(client);
    Answer answer = keeper_.handle(*request, received->descriptors);
    int passed = answer.descriptor.get();
    auto sent = send_with_descriptors(socket, std::as_bytes(std::span(&answer.reply, 1)),
                                      std::span(&passed, answer.descriptor ? 1 : 0));
    // Whoever does not take its answers is gone: the next receive says so.
    (void)sent;
    place.follow(request->header.processor);
    return hurried;
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
