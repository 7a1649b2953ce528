#include "server.h"

#include <atomic>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace anchorhold::mounts {
namespace {

constexpr int worker_count = 4;

class Server {
 public:
  Server(Keeper& keeper, std::vector<UniqueFd> clients) : keeper_(keeper), clients_(std::move(clients)) {}

  Status run() {
    epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    ended_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    if (!epoll_ || !ended_) return fail_errno(errno, "epoll");
    open_clients_ = clients_.size();
    // Each client is watched for one message at a time (EPOLLONESHOT) and armed again as soon as that was
    // read.
    for (std::size_t i = 0; i < clients_.size(); ++i)
      if (!watch(EPOLL_CTL_ADD, clients_[i].get(), EPOLLIN | EPOLLONESHOT, i))
        return fail_errno(errno, "epoll");
    if (!watch(EPOLL_CTL_ADD, ended_.get(), EPOLLIN, clients_.size())) return fail_errno(errno, "epoll");
    if (clients_.empty()) return {};
    std::vector<std::thread> workers;
    for (int i = 1; i < worker_count; ++i) workers.emplace_back([this] { work(); });
    work();
    for (auto& worker : workers) worker.join();
    return {};
  }

 private:
  bool watch(int operation, int fd, std::uint32_t events, std::uint64_t index) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = index;
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
  }

  void work() {
    std::vector<std::byte> buffer(sizeof(RequestHeader) + max_payload_bytes);
    for (;;) {
      epoll_event event;
      int ready = epoll_wait(epoll_.get(), &event, 1, -1);
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0 || event.data.u64 == clients_.size()) return;
      serve_one(event.data.u64, buffer);
    }
  }

  void serve_one(std::size_t index, std::vector<std::byte>& buffer) {
    int socket = clients_[index].get();
    auto received = receive_with_descriptors(socket, buffer);
    if (received && received->size == 0) return end_client(index);
    if (!received) {
      keeper_.report_malformed(received.error());
      return end_client(index);
    }
    auto request = parse_request(std::span(buffer).first(received->size), received->descriptors.size());
    if (!request) {
      keeper_.report_malformed(request.error());
      return end_client(index);
    }
    watch(EPOLL_CTL_MOD, socket, EPOLLIN | EPOLLONESHOT, index);
    Answer answer = keeper_.handle(*request, received->descriptors);
    int passed = answer.descriptor.get();
    auto sent = send_with_descriptors(socket, std::as_bytes(std::span(&answer.reply, 1)),
                                      std::span(&passed, answer.descriptor ? 1 : 0));
    // Whoever does not take its answers is gone: the next receive says so.
    (void)sent;
  }

  // The socket is shut but its number is kept: other workers may still be answering on it.
  void end_client(std::size_t index) {
    shutdown(clients_[index].get(), SHUT_RDWR);
    if (--open_clients_ > 0) return;
    std::uint64_t one = 1;
    (void)!write(ended_.get(), &one, sizeof one);
  }

  Keeper& keeper_;
  std::vector<UniqueFd> clients_;
  UniqueFd epoll_;
  UniqueFd ended_;
  std::atomic<std::size_t> open_clients_{0};
};

}  // namespace

Status serve_clients(Keeper& keeper, std::vector<UniqueFd> clients) {
  return Server(keeper, std::move(clients)).run();
}

}  // namespace anchorhold::mounts
