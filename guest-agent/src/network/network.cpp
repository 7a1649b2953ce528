#include "network.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <linux/vm_sockets.h>
#include <list>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

#include "connection.h"
#include "dns_answer.h"
#include "vsock/event_loop.h"
#include "vsock/ports.h"

namespace anchorhold::guest {
namespace {

constexpr int original_destination = 80;  // linux/netfilter_ipv4.h and linux/netfilter_ipv6/ip6_tables.h
constexpr std::size_t max_dns_connections = 64;
constexpr std::size_t max_query_bytes = 4096;
constexpr int accepted_a_turn = 64;

Result<UniqueFd> dial_egress() {
  UniqueFd stream(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!stream) return fail_errno(errno, "making a vsock socket");
  timeval patience{.tv_sec = 30, .tv_usec = 0};
  (void)setsockopt(stream.get(), AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &patience, sizeof patience);
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = vsock::host_cid;
  address.svm_port = vsock::host_port::egress;
  if (connect(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS)
    return fail_errno(errno, "dialling the host");
  return stream;
}

Result<UniqueFd> bind_loopback(int family, int type, std::uint16_t port) {
  UniqueFd bound(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!bound) return fail_errno(errno, "making a socket");
  int yes = 1;
  (void)setsockopt(bound.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  sockaddr_in6 address6{};
  address6.sin6_family = AF_INET6;
  address6.sin6_addr = in6addr_loopback;
  address6.sin6_port = htons(port);
  const bool is6 = family == AF_INET6;
  if (is6) (void)setsockopt(bound.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  const auto* any =
      is6 ? reinterpret_cast<const sockaddr*>(&address6) : reinterpret_cast<const sockaddr*>(&address);
  if (bind(bound.get(), any, is6 ? sizeof address6 : sizeof address) != 0 ||
      (type == SOCK_STREAM && listen(bound.get(), 1024) != 0))
    return fail_errno(errno, "listening on a port of the guest");
  return bound;
}

Result<std::uint16_t> port_of(const UniqueFd& bound) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return fail_errno(errno, "a port of the guest");
  return ntohs(address.sin_port);
}

// A DNS client over TCP: each query and answer with its length before it (RFC 1035 4.2.2).
struct DnsConnection {
  UniqueFd client;
  std::string bytes;
  vsock::EventLoop::Watch watch;
};

class LoopNetwork final : public Network {
 public:
  explicit LoopNetwork(Ports ports, std::unique_ptr<vsock::EventLoop> loop,
                       std::function<Result<UniqueFd>()> dial)
      : ports_(ports),
        loop_(std::move(loop)),
        host_{*loop_, [this](std::uint32_t address) { return names_.name_of(address, Clock::now()); },
              std::move(dial)} {}
  ~LoopNetwork() override {
    loop_->stop({});
    if (thread_.joinable()) thread_.join();
  }

  Status begin() {
    ANCHORHOLD_CHECK(listen_for(SOCK_STREAM, ports_.proxy, [this](int fd) {
      accept_all(fd, [this](UniqueFd client) { add(Connection::Kind::proxy, std::move(client), {}); });
    }));
    ANCHORHOLD_CHECK(listen_for(SOCK_STREAM, ports_.transparent, [this](int fd) {
      accept_all(fd, [this](UniqueFd client) { accept_transparent(std::move(client)); });
    }));
    ANCHORHOLD_CHECK(listen_for(SOCK_DGRAM, ports_.dns, [this](int fd) { answer_datagrams(fd); }));
    ANCHORHOLD_CHECK(listen_for(SOCK_STREAM, ports_.dns, [this](int fd) {
      accept_all(fd, [this](UniqueFd client) { add_dns(std::move(client)); });
    }));
    thread_ = std::thread([this] { (void)loop_->run(); });
    return {};
  }
  Ports ports() const override { return ports_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Listener {
    UniqueFd fd;
    vsock::EventLoop::Watch watch;
  };

  Status listen_for(int type, std::uint16_t& port, const std::function<void(int fd)>& ready) {
    auto bound = ANCHORHOLD_TRY(bind_loopback(AF_INET, type, port));
    const bool any = port == 0;
    port = ANCHORHOLD_TRY(port_of(bound));
    ANCHORHOLD_CHECK(add_listener(std::move(bound), ready));
    // The redirect leads IPv6 to the same ports. Who chose none has no redirect.
    if (any) return {};
    return add_listener(ANCHORHOLD_TRY(bind_loopback(AF_INET6, type, port)), ready);
  }

  Status add_listener(UniqueFd bound, const std::function<void(int fd)>& ready) {
    auto& listener = listeners_.emplace_back();
    listener.fd = std::move(bound);
    listener.watch =
        ANCHORHOLD_TRY(loop_->watch(listener.fd.get(), vsock::ready::readable,
                                    [fd = listener.fd.get(), ready](std::uint32_t) { ready(fd); }));
    return {};
  }

  template <typename Take>
  void accept_all(int listener, Take take) {
    for (int i = 0; i < accepted_a_turn; ++i) {
      UniqueFd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client) return;
      int yes = 1;
      (void)setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      take(std::move(client));
    }
  }

  // One too many is closed at once; so is one that cannot be served.
  void add(Connection::Kind kind, UniqueFd client, std::string target) {
    if (connections_.size() >= max_connections) return;
    auto place = connections_.emplace(connections_.end());
    auto made = Connection::create(host_, kind, std::move(client), std::move(target),
                                   [this, place] { connections_.erase(place); });
    if (made)
      *place = std::move(*made);
    else
      connections_.erase(place);
  }

  void accept_transparent(UniqueFd client) {
    if (auto target = wanted_by(client))
      add(Connection::Kind::transparent, std::move(client), std::move(*target));
  }

  // Nothing for who was not redirected: nobody it wanted to reach is here.
  std::optional<std::string> wanted_by(const UniqueFd& client) {
    int family = 0;
    socklen_t size = sizeof family;
    if (getsockopt(client.get(), SOL_SOCKET, SO_DOMAIN, &family, &size) != 0) return std::nullopt;
    if (family == AF_INET6) {
      sockaddr_in6 wanted{};
      size = sizeof wanted;
      if (getsockopt(client.get(), IPPROTO_IPV6, original_destination, &wanted, &size) != 0 ||
          IN6_IS_ADDR_LOOPBACK(&wanted.sin6_addr))
        return std::nullopt;
      Address6 address;
      std::copy_n(wanted.sin6_addr.s6_addr, address.size(), address.begin());
      return target_of(address, ntohs(wanted.sin6_port), host_.find_name);
    }
    sockaddr_in wanted{};
    size = sizeof wanted;
    if (getsockopt(client.get(), IPPROTO_IP, original_destination, &wanted, &size) != 0) return std::nullopt;
    const std::uint32_t address = ntohl(wanted.sin_addr.s_addr);
    if (address >> 24 == 127) return std::nullopt;
    return target_of(address, ntohs(wanted.sin_port), host_.find_name);
  }

  void answer_datagrams(int fd) {
    for (int i = 0; i < accepted_a_turn; ++i) {
      char query[max_query_bytes];
      sockaddr_storage from{};
      socklen_t from_size = sizeof from;
      ssize_t got =
          recvfrom(fd, query, sizeof query, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &from_size);
      if (got < 0) return;
      std::string answer = answer_query({query, static_cast<std::size_t>(got)}, names_, Clock::now());
      if (!answer.empty())
        (void)!sendto(fd, answer.data(), answer.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from),
                      from_size);
    }
  }

  void add_dns(UniqueFd client) {
    if (dns_.size() >= max_dns_connections) dns_.pop_front();
    auto& added = dns_.emplace_back(std::make_shared<DnsConnection>());
    added->client = std::move(client);
    auto watch = loop_->watch(added->client.get(), vsock::ready::readable,
                              [this, weak = std::weak_ptr(added)](std::uint32_t) {
                                if (auto connection = weak.lock(); connection && !serve_dns(*connection))
                                  dns_.remove(connection);
                              });
    if (watch)
      added->watch = std::move(*watch);
    else
      dns_.pop_back();
  }

  // False at its end.
  bool serve_dns(DnsConnection& connection) {
    char bytes[max_query_bytes + 2];
    ssize_t got = read(connection.client.get(), bytes, sizeof bytes - connection.bytes.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    connection.bytes.append(bytes, static_cast<std::size_t>(got));
    while (connection.bytes.size() >= 2) {
      const std::size_t size = static_cast<std::size_t>(static_cast<unsigned char>(connection.bytes[0]))
                                   << 8 |
                               static_cast<unsigned char>(connection.bytes[1]);
      if (size > max_query_bytes) return false;
      if (connection.bytes.size() < size + 2) return true;
      std::string answer =
          answer_query(std::string_view(connection.bytes).substr(2, size), names_, Clock::now());
      connection.bytes.erase(0, size + 2);
      if (answer.empty()) return false;
      std::string framed{static_cast<char>(answer.size() >> 8), static_cast<char>(answer.size())};
      framed += answer;
      if (send(connection.client.get(), framed.data(), framed.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
          static_cast<ssize_t>(framed.size()))
        return false;
    }
    return true;
  }

  Ports ports_;
  std::unique_ptr<vsock::EventLoop> loop_;
  NameTable names_;
  ConnectionHost host_;
  std::list<Listener> listeners_;
  std::list<std::shared_ptr<DnsConnection>> dns_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Network>> Network::start(Ports ports, std::function<Result<UniqueFd>()> dial) {
  auto loop = ANCHORHOLD_TRY(vsock::EventLoop::create());
  auto network = std::make_unique<LoopNetwork>(ports, std::move(loop), dial ? std::move(dial) : dial_egress);
  ANCHORHOLD_CHECK(network->begin());
  return network;
}

}  // namespace anchorhold::guest
