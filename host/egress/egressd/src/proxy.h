// The process as a whole: the configuration in force, the connections that are open, and the one decision
// that every one of them goes through.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "authority.h"
#include "decided.h"
#include "dialer.h"
#include "egress/control.h"
#include "host_link.h"
#include "own_addresses.h"
#include "relay_loops.h"
#include "resolver.h"

namespace anchorhold::egress {

class GuestConnection;

class Proxy {
 public:
  Proxy(asio::io_context& loop, UniqueFd control, std::unique_ptr<Resolver> resolver, OwnAddresses own,
        std::unique_ptr<Authority> authority, unsigned relay_threads);
  ~Proxy();

  // Says that the process is sealed, and serves until the host is gone.
  Awaitable<Status> serve(int landlock_version);

  // Allowed or denied; asks the person where the policy says so, one question for all that want the same.
  Awaitable<Decided> decide(Wanted wanted);
  Decided decide_now(const policy::Destination& destination) const;

  // Part of what a connection holds is freed: when that are many, it goes back to the system.
  void memory_is_given_back() { ++given_back_; }

  asio::io_context& loop() { return loop_; }
  RelayLoops& relay_loops() { return relay_loops_; }
  HostLink& host() { return host_; }
  Dialer& dialer() { return dialer_; }
  Authority& authority() { return *authority_; }
  // For servers; none before the host gave the certificates to trust.
  SSL_CTX* trust() { return trust_.get(); }
  std::shared_ptr<const Configuration> configuration() const { return configuration_; }

 private:
  struct Pending;
  Status take(ControlMessage message);
  Status configure(ControlMessage message);
  void accept(UniqueFd stream);
  std::size_t most_connections() const;
  Awaitable<void> run(std::shared_ptr<GuestConnection> connection);
  Awaitable<void> report_full(EventReport report);
  Awaitable<void> refuse_full(UniqueFd stream, std::string answer);
  Awaitable<void> look_at_deadlines();
  Awaitable<void> ask(std::shared_ptr<Pending> pending, Wanted wanted, std::string reason);

  asio::io_context& loop_;
  HostLink host_;
  std::unique_ptr<Resolver> resolver_;
  OwnAddresses own_;
  Dialer dialer_;
  std::unique_ptr<Authority> authority_;
  SslContext trust_;
  std::shared_ptr<const Configuration> configuration_;
  RelayLoops relay_loops_;
  std::unordered_map<GuestConnection*, std::weak_ptr<GuestConnection>> connections_;
  std::map<policy::Destination, std::shared_ptr<Pending>> questions_;
  bool was_full_ = false;
  std::size_t refusing_ = 0;
  std::size_t given_back_ = 0;
};

}  // namespace anchorhold::egress
