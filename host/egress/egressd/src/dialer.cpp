#include "dialer.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "egress/http_head.h"

namespace anchorhold::egress {
namespace {

// The next address is tried beside the one before after this time (RFC 8305 5).
constexpr std::chrono::milliseconds stagger(250);
constexpr std::size_t max_addresses = 16;

// The address families by turns, the first one first (RFC 8305 4).
std::vector<policy::Address> interleaved(std::vector<policy::Address> addresses) {
  std::vector<policy::Address> result;
  bool v4 = !addresses.empty() && addresses.front().is_v4();
  while (!addresses.empty() && result.size() < max_addresses) {
    auto next = std::find_if(addresses.begin(), addresses.end(),
                             [&](const policy::Address& address) { return address.is_v4() == v4; });
    if (next == addresses.end()) next = addresses.begin();
    v4 = !next->is_v4();
    result.push_back(*next);
    addresses.erase(next);
  }
  return result;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

SocketAddress socket_address(const policy::Address& address, std::uint16_t port) {
  SocketAddress result;
  if (address.is_v4()) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, address.bytes().data(), 4);
    std::memcpy(&result.storage, &in, result.size = sizeof in);
  } else {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    std::memcpy(&in.sin6_addr, address.bytes().data(), 16);
    std::memcpy(&result.storage, &in, result.size = sizeof in);
  }
  return result;
}

void set_options(int fd) {
  int one = 1, idle = 120, interval = 30, count = 4;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

// What the attempts to one destination share.
struct Race {
  explicit Race(asio::io_context& loop) : changed(loop) {}
  Signal changed;
  std::unique_ptr<SocketStream> winner;
  policy::Address address;
  std::size_t running = 0;
  int error = 0;
  bool over = false;
  std::vector<SocketStream*> attempts;
};

Awaitable<void> attempt(asio::io_context& loop, std::shared_ptr<Race> race, policy::Address address,
                        std::uint16_t port) {
  UniqueFd fd(socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = fd ? 0 : errno;
  std::unique_ptr<SocketStream> stream;
  if (fd && is_kept_descriptor(fd.get())) {
    fd.reset();
    error = EMFILE;
  }
  if (fd) {
    set_options(fd.get());
    auto where = socket_address(address, port);
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&where.storage), where.size) != 0) error = errno;
    bool connecting = error == EINPROGRESS;
    stream = std::make_unique<SocketStream>(loop, std::move(fd));
    if (connecting) {
      race->attempts.push_back(stream.get());
      co_await stream->wait(Direction::write);
      std::erase(race->attempts, stream.get());
      socklen_t size = sizeof error;
      if (getsockopt(stream->descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      // One that was given up is not connected, and says so by nothing else.
      if (error == 0 && race->over) error = ECANCELED;
    }
  }
  --race->running;
  if (error == 0 && !race->over && !race->winner) {
    race->winner = std::move(stream);
    race->address = address;
  } else if (error != 0 && error != ECANCELED) {
    race->error = error;
  }
  race->changed.set();
}

}  // namespace

std::string proxy_authorization(const UpstreamProxy& proxy) {
  if (proxy.user.empty()) return {};
  return field_with_secret({CredentialForm::Kind::basic, {}, proxy.user}, proxy.password);
}

std::string Route::text() const {
  if (proxy) return fmt::format("proxy {}", proxy->address.text());
  std::string list;
  for (const auto& address : addresses) list += (list.empty() ? "" : " ") + address.text();
  return list;
}

Awaitable<Result<Route>> Dialer::route(policy::Destination destination,
                                       const policy::EgressDecision& decision,
                                       std::shared_ptr<const Configuration> configuration, bool plain) {
  Route route{.destination = destination, .addresses = {}};
  route.proxy = configuration->proxies.for_destination(destination, plain);
  if (destination.host.address()) {
    route.addresses = {*destination.host.address()};
  } else {
    auto resolved = co_await resolver_.resolve(destination.host.text());
    if (resolved) {
      if (resolved->has_hidden)
        co_return fail(ErrorCode::permission_denied,
                       fmt::format("{} leads to an IPv6 address that hides an IPv4 one", destination.text()));
      route.addresses = std::move(resolved->addresses);
    } else if (!route.proxy) {
      // Behind a proxy, names outside are often known to the proxy alone.
      co_return fail(std::move(resolved).error());
    }
  }
  if (route.proxy && route.addresses.empty()) co_return route;
  auto own = own_.current();
  if (!own) co_return fail(std::move(own).error());
  if (auto judged = policy::judge_addresses(decision, destination, route.addresses, *own); !judged)
    co_return fail(std::move(judged).error());
  co_return route;
}

Status Dialer::judge_again(const policy::EgressDecision& decision, const policy::Destination& destination,
                           const policy::Address& address) {
  auto own = ANCHORHOLD_TRY(own_.current());
  return policy::judge_addresses(decision, destination, {&address, 1}, own);
}

Awaitable<Result<Connection>> Dialer::dial(const Route& route, SSL_CTX* trust, bool plain,
                                           std::chrono::milliseconds limit) {
  if (!route.proxy) co_return co_await dial_any(route.addresses, route.destination.port, limit);
  auto connection = co_await dial_proxy(*route.proxy, trust, limit);
  if (!connection) co_return fail(with_context(std::move(connection).error(), "the host's proxy"));
  connection->address.reset();
  if (plain) co_return std::move(*connection);
  TimeLimit time(loop_, *connection->stream, limit);
  auto through = co_await connect_through(*connection->stream, *route.proxy, route.destination);
  if (!through) co_return fail(std::move(through).error());
  co_return std::move(*connection);
}

Awaitable<Result<Connection>> Dialer::dial_any(std::vector<policy::Address> addresses, std::uint16_t port,
                                               std::chrono::milliseconds limit) {
  auto race = std::make_shared<Race>(loop_);
  auto order = interleaved(std::move(addresses));
  auto end = std::chrono::steady_clock::now() + limit;
  std::size_t next = 0;
  while (!race->winner) {
    if (next < order.size()) {
      ++race->running;
      asio::co_spawn(loop_, attempt(loop_, race, order[next++], port), asio::detached);
    }
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    bool more = next < order.size();
    if (left.count() <= 0 || (!more && race->running == 0 && race->changed.is_set())) break;
    race->changed.reset();
    co_await race->changed.wait_for(more ? std::min(stagger, left) : left);
    if (!race->winner && race->running == 0 && next == order.size()) break;
  }
  race->over = true;
  for (SocketStream* losing : race->attempts) losing->cut();
  if (!race->winner)
    co_return fail(ErrorCode::unavailable,
                   race->error ? std::strerror(race->error) : "it did not answer in time");
  Connection connection;
  connection.stream = std::move(race->winner);
  connection.address = race->address;
  co_return connection;
}

Awaitable<Result<Connection>> Dialer::dial_proxy(const UpstreamProxy& proxy, SSL_CTX* trust,
                                                 std::chrono::milliseconds limit) {
  std::vector<policy::Address> addresses;
  const policy::Host& host = proxy.address.host;
  if (host.address()) {
    addresses = {*host.address()};
  } else {
    auto resolved = co_await resolver_.resolve(host.text());
    if (!resolved) co_return fail(std::move(resolved).error());
    addresses = std::move(resolved->addresses);
  }
  auto connection = co_await dial_any(std::move(addresses), proxy.address.port, limit);
  if (!connection || !proxy.tls) co_return std::move(connection);
  auto tls = TlsStream::create(trust, std::move(connection->stream));
  if (!tls) co_return fail(std::move(tls).error());
  std::string name = host.address() ? host.address()->text() : host.text();
  TimeLimit time(loop_, **tls, limit);
  std::vector<std::string> no_protocols;
  auto shaken = co_await (*tls)->connect(name, host.address().has_value(), std::move(no_protocols));
  if (!shaken) co_return fail(std::move(shaken).error());
  connection->stream = std::move(*tls);
  co_return std::move(*connection);
}

Awaitable<Status> Dialer::connect_through(Stream& stream, const UpstreamProxy& proxy,
                                          const policy::Destination& destination) {
  std::string request = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n", destination.text());
  if (auto value = proxy_authorization(proxy); !value.empty())
    request += fmt::format("Proxy-Authorization: {}\r\n", value);
  request += "\r\n";
  bool sent = co_await write_all(stream, request);
  Reader reader(stream);
  while (sent) {
    auto head = parse_response_head(reader.bytes(), "CONNECT");
    if (!head) co_return fail(with_context(std::move(head).error(), "the host's proxy"));
    if (*head) {
      unsigned status = (*head)->head.status;
      if (status / 100 != 2)
        co_return fail(ErrorCode::unavailable, fmt::format("the host's proxy refused {} with {} {}",
                                                           destination.text(), status, (*head)->head.reason));
      if (reader.bytes().size() != (*head)->size)
        co_return fail(ErrorCode::unavailable, "the host's proxy spoke before the server could");
      co_return Status();
    }
    if (!co_await reader.fill()) break;
  }
  co_return fail(ErrorCode::unavailable, "the host's proxy closed the connection");
}

}  // namespace anchorhold::egress
