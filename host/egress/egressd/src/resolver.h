// Names to addresses, by the host's nameservers and nothing else: no search domains, no hosts file, no cache.
// Each answer is of now. The DNS itself is c-ares.
#pragma once

#include <ares.h>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "egress/upstream.h"
#include "policy/destination.h"
#include "signal.h"

namespace anchorhold::egress {

struct Resolved {
  std::vector<policy::Address> addresses;
  // An answer that hides an IPv4 address in another one, and so cannot be judged.
  bool has_hidden = false;
};

class Resolver {
 public:
  // Before the process is sealed: c-ares reads files when it begins.
  static Result<std::unique_ptr<Resolver>> create(asio::io_context& loop, std::chrono::milliseconds timeout,
                                                  int attempts);
  ~Resolver();
  // From now on; what is being asked of others is asked of these. An empty list answers nothing.
  Status use(const std::vector<std::string>& servers);
  // IPv4 and IPv6. not_found: there is no such name, or it has no address; unavailable: no answer.
  Awaitable<Result<Resolved>> resolve(std::string name);

 private:
  struct Socket;
  struct Query;
  std::shared_ptr<Query> ask(const std::string& name);
  explicit Resolver(asio::io_context& loop) : loop_(loop), timer_(loop) {}
  static void socket_changed(void* self, ares_socket_t fd, int readable, int writable);
  static void answered(void* query, int status, int timeouts, ares_addrinfo* answer);
  void watch(ares_socket_t fd, Direction direction);
  void process(ares_socket_t readable, ares_socket_t writable);
  void arm();

  asio::io_context& loop_;
  asio::steady_timer timer_;
  ares_channel channel_ = nullptr;
  std::map<ares_socket_t, std::shared_ptr<Socket>> sockets_;
  std::size_t open_ = 0;  // queries
  std::string servers_;   // separated by commas
};

}  // namespace anchorhold::egress
