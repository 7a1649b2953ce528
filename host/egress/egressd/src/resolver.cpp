#include "resolver.h"

#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>
#include <netinet/in.h>

namespace anchorhold::egress {
namespace {

constexpr std::size_t max_open_queries = 2000;

}  // namespace

struct Resolver::Socket {
  Socket(asio::io_context& loop, int fd) : descriptor(loop, fd) {}
  asio::posix::stream_descriptor descriptor;
  bool wants_read = false, wants_write = false;
  bool waits_read = false, waits_write = false;
};

struct Resolver::Query {
  explicit Query(Resolver& owner) : resolver(owner), done(owner.loop_) {}
  Resolver& resolver;
  Signal done;
  int status = ARES_EDESTRUCTION;
  Resolved resolved;
  std::shared_ptr<Query> self;  // while c-ares has it
};

Result<std::unique_ptr<Resolver>> Resolver::create(asio::io_context& loop, std::chrono::milliseconds timeout,
                                                   int attempts) {
  std::unique_ptr<Resolver> resolver(new Resolver(loop));
  ares_options options{};
  options.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS;
  options.timeout = static_cast<int>(timeout.count());
  options.tries = attempts;
  char dns_only[] = "b";
  options.lookups = dns_only;
  options.ednspsz = 1232;
  options.sock_state_cb = &Resolver::socket_changed;
  options.sock_state_cb_data = resolver.get();
  int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS | ARES_OPT_EDNSPSZ |
             ARES_OPT_SOCK_STATE_CB;
  if (int status = ares_library_init(ARES_LIB_INIT_ALL); status != ARES_SUCCESS)
    return fail(ErrorCode::internal, ares_strerror(status));
  if (int status = ares_init_options(&resolver->channel_, &options, mask); status != ARES_SUCCESS)
    return fail(ErrorCode::internal, ares_strerror(status));
  return resolver;
}

Resolver::~Resolver() {
  if (channel_) ares_destroy(channel_);
}

Status Resolver::use(const std::vector<std::string>& servers) {
  auto list = fmt::format("{}", fmt::join(servers, ","));
  if (list == servers_) return {};
  // A channel's servers can only be changed while it asks nothing.
  ares_cancel(channel_);
  servers_ = std::move(list);
  if (servers_.empty()) return {};
  int status = ares_set_servers_ports_csv(channel_, servers_.c_str());
  if (status == ARES_SUCCESS) return {};
  auto wrong = std::exchange(servers_, {});
  return fail(ErrorCode::invalid_argument, fmt::format("nameservers {}: {}", wrong, ares_strerror(status)));
}

Awaitable<Result<Resolved>> Resolver::resolve(std::string name) {
  std::shared_ptr<Query> query;
  // Again when the servers were changed meanwhile.
  do {
    if (servers_.empty()) co_return fail(ErrorCode::unavailable, "the host has no nameserver");
    if (open_ >= max_open_queries) co_return fail(ErrorCode::resource_exhausted, "too many names at once");
    query = ask(name);
    co_await query->done.wait();
  } while (query->status == ARES_ECANCELLED);
  if (query->status == ARES_SUCCESS) co_return std::move(query->resolved);
  bool nothing = query->status == ARES_ENOTFOUND || query->status == ARES_ENODATA;
  co_return fail(nothing ? ErrorCode::not_found : ErrorCode::unavailable,
                 nothing ? fmt::format("there is no address for {}", name)
                         : fmt::format("{} could not be resolved: {}", name, ares_strerror(query->status)));
}

std::shared_ptr<Resolver::Query> Resolver::ask(const std::string& name) {
  auto query = std::make_shared<Query>(*this);
  query->self = query;
  ++open_;
  ares_addrinfo_hints hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = ARES_AI_NOSORT;
  ares_getaddrinfo(channel_, name.c_str(), nullptr, &hints, &Resolver::answered, query.get());
  arm();
  return query;
}

void Resolver::answered(void* pointer, int status, int, ares_addrinfo* answer) {
  auto query = std::move(static_cast<Query*>(pointer)->self);
  --query->resolver.open_;
  query->status = status;
  for (auto* node = answer ? answer->nodes : nullptr; node; node = node->ai_next) {
    auto& addresses = query->resolved.addresses;
    if (node->ai_family == AF_INET) {
      std::array<std::uint8_t, 4> bytes;
      std::memcpy(bytes.data(), &reinterpret_cast<sockaddr_in*>(node->ai_addr)->sin_addr, bytes.size());
      addresses.push_back(policy::Address::v4(bytes));
    } else if (node->ai_family == AF_INET6) {
      std::array<std::uint8_t, 16> bytes;
      std::memcpy(bytes.data(), &reinterpret_cast<sockaddr_in6*>(node->ai_addr)->sin6_addr, bytes.size());
      auto address = policy::Address::v6(bytes);
      if (address)
        addresses.push_back(*address);
      else
        query->resolved.has_hidden = true;
    }
  }
  if (answer) ares_freeaddrinfo(answer);
  query->done.set();
}

void Resolver::socket_changed(void* pointer, ares_socket_t fd, int readable, int writable) {
  auto* self = static_cast<Resolver*>(pointer);
  if (!readable && !writable) {
    // c-ares closes it now.
    if (auto node = self->sockets_.extract(fd)) node.mapped()->descriptor.release();
    return;
  }
  auto& socket = self->sockets_[fd];
  if (!socket) socket = std::make_shared<Socket>(self->loop_, fd);
  socket->wants_read = readable != 0;
  socket->wants_write = writable != 0;
  if (socket->wants_read) self->watch(fd, Direction::read);
  if (socket->wants_write) self->watch(fd, Direction::write);
}

void Resolver::watch(ares_socket_t fd, Direction direction) {
  auto socket = sockets_[fd];
  bool read = direction == Direction::read;
  bool& waits = read ? socket->waits_read : socket->waits_write;
  if (std::exchange(waits, true)) return;
  auto type = read ? asio::posix::stream_descriptor::wait_read : asio::posix::stream_descriptor::wait_write;
  socket->descriptor.async_wait(type, [this, fd, socket, read, direction](boost::system::error_code error) {
    (read ? socket->waits_read : socket->waits_write) = false;
    if (error) return;  // released, or the loop ends
    process(read ? fd : ARES_SOCKET_BAD, read ? ARES_SOCKET_BAD : fd);
    auto found = sockets_.find(fd);
    if (found == sockets_.end() || found->second != socket) return;
    if (read ? socket->wants_read : socket->wants_write) watch(fd, direction);
  });
}

void Resolver::process(ares_socket_t readable, ares_socket_t writable) {
  ares_process_fd(channel_, readable, writable);
  arm();
}

void Resolver::arm() {
  timer_.cancel();
  if (open_ == 0) return;
  timeval limit{1, 0}, next;
  timeval* until = ares_timeout(channel_, &limit, &next);
  timer_.expires_after(std::chrono::seconds(until->tv_sec) + std::chrono::microseconds(until->tv_usec) +
                       std::chrono::milliseconds(1));
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) process(ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  });
}

}  // namespace anchorhold::egress
