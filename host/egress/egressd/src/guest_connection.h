// One connection of the guest, from its first byte to its last. It speaks HTTP to its proxy: CONNECT, after
// which it is a tunnel, an opened TLS connection or plain HTTP; or http:// requests, each judged alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egress/client_hello.h"
#include "egress/http_head.h"
#include "opened_connection.h"
#include "proxy.h"
#include "refusal.h"
#include "stream.h"

namespace anchorhold::egress {

class Http2Bridge;

class GuestConnection final : public OpenedConnection, public std::enable_shared_from_this<GuestConnection> {
 public:
  GuestConnection(Proxy& proxy, std::unique_ptr<Stream> guest);
  ~GuestConnection() override;

  Awaitable<void> run();
  // The policy changed: goes on, or is cut with an event.
  void judge_again();
  // Of what the connection allows itself to wait.
  void time_is_over();
  const Deadline& deadline() const { return deadline_; }

  // OpenedConnection
  asio::io_context& loop() override { return proxy_.loop(); }
  const policy::Destination& destination() const override { return *destination_; }
  const Decided& decided() const override { return decided_; }
  Stream* server() override { return server_.get(); }
  std::unique_ptr<Stream> let_go_of_server() override;
  Awaitable<std::optional<Refusal>> dial_server() override;
  void moves() override;
  void rests(std::chrono::milliseconds limit) override;
  EventReport report_of(EventKind kind, std::string cause) const override;
  Awaitable<bool> record(EventReport report) override;
  Awaitable<Result<std::string>> secret(SecretRequest request) override;
  std::string& last_git() override { return last_git_; }

 private:
  friend class HttpExchange;

  // Everything that is awaited is given objects with names, or those that functions return: GCC 12 destroys
  // temporaries that braces make in such a call twice.
  static Refusal refusal(unsigned status, EventReport report);
  Awaitable<void> refuse(Stream& guest, Refusal why);
  // Recorded, and the guest is told by an alert of TLS, since it waits for a server's hello.
  Awaitable<void> refuse_hello(std::string cause, bool violation);

  // What a connection is after its beginning. Each step returns what comes next instead of awaiting it:
  // frames of coroutines are large, and one that is awaited from stays as long as the connection does.
  enum class Next { over, inside, raw, tunnel, http, http2 };
  Awaitable<Next> begin();
  Awaitable<std::optional<RequestHead>> read_first_head();
  Awaitable<Next> connect(RequestHead head);
  // Decided, resolved, judged, recorded and dialled; a refusal otherwise. Replaces what was connected.
  Awaitable<std::optional<Refusal>> reach(Wanted wanted, bool plain);
  Awaitable<std::optional<Refusal>> dial_again(bool plain);

  Awaitable<Next> look_inside();
  Awaitable<Next> look_inside_tls();
  Awaitable<void> run_raw();
  Awaitable<bool> pass_first_bytes();
  Awaitable<void> run_http();
  Awaitable<void> run_http2();
  // Nothing when there is none that may pass; it was refused then.
  Awaitable<std::optional<ClientHello>> read_hello();
  std::string fault_of(const ClientHello& hello) const;
  Awaitable<Next> intercept(ClientHello hello);
  // TLS to the server, verified; `server_` is it then.
  Awaitable<std::optional<Refusal>> secure_server(std::vector<std::string> protocols);
  // An HTTP/1 server inside TLS that answers the first request with why there is no other.
  Awaitable<void> explain_inside(Refusal why, const ClientHello& hello);
  Awaitable<void> tunnel();
  void cut();

  Proxy& proxy_;
  std::unique_ptr<Stream> guest_;
  Reader reader_;
  Deadline deadline_;

  std::optional<policy::Destination> destination_;
  Decided decided_;
  std::unique_ptr<Stream> server_;
  std::unique_ptr<Stream> inside_;  // what the guest says in TLS that is opened
  std::optional<policy::Address> address_;
  std::shared_ptr<const UpstreamProxy> through_;
  Http2Bridge* bridge_ = nullptr;  // while it speaks HTTP/2
  bool resting_ = false;           // the bridge has nothing to do
  std::string last_git_;           // what was recorded last of what it does with Git
  bool opened_ = false;            // the bytes inside are read here
  bool cut_ = false;
};

}  // namespace anchorhold::egress
