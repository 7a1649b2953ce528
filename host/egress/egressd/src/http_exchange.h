// HTTP/1 requests of a guest, one after another, each judged alone, and their responses.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egress/request_judge.h"
#include "guest_connection.h"
#include "http_body.h"

namespace anchorhold::egress {

class HttpExchange {
 public:
  enum class Kind {
    proxied,     // http:// requests to the proxy, each for a destination of its own
    inside,      // in what was connected, not encrypted
    inside_tls,  // in what was connected and opened; the connection's server stream is TLS
  };
  HttpExchange(GuestConnection& connection, Stream& guest, Reader& reader, Kind kind);

  // Until the guest or a refusal ends the connection.
  Awaitable<void> run();
  // The same, when the first request's head has been read already.
  Awaitable<void> run_from(RequestHead first);

 private:
  struct Sending;
  class Nowhere;
  // A request on its way to the server.
  struct Outgoing {
    RequestHead head;
    std::string text;
    std::vector<std::string> secret_patterns;
    bool credential = false;
    bool websocket = false;
    std::optional<GitPush> push;  // the commands that its body begins with
  };

  std::uint16_t scheme_port() const { return kind_ == Kind::inside_tls ? 443 : 80; }
  // Nothing more of it is in memory while a connection waits for its next request than what run() and
  // request_begins() need.
  enum class Next { another, ends, over };  // ends: the guest still has to read its answer
  Awaitable<bool> request_begins();
  Awaitable<Next> next_one();
  Awaitable<void> end();
  Awaitable<std::optional<RequestHead>> next_head();
  Awaitable<bool> one(RequestHead head);
  Awaitable<void> refuse_request(const RequestHead& head, unsigned status, EventReport report,
                                 bool challenge = false);
  Awaitable<bool> ready_server(const RequestHead& head);
  Awaitable<bool> connect_server(const RequestHead& head);
  bool server_is_silent();
  RequestJudgement judge(const RequestHead& head, const Decided& decided) const;
  Awaitable<bool> hold_push(RequestHead& head, Outgoing& outgoing);
  Awaitable<bool> admit_git(const RequestHead& head, const Decided& decided, const GitRequest& request,
                            const std::optional<GitPush>& push);
  Awaitable<void> refuse_push(const RequestHead& head, EventReport report, std::string answer);
  Awaitable<bool> prepare(RequestHead& head, Outgoing& outgoing);
  Awaitable<std::optional<std::string>> secret_for(const RequestHead& head, std::string scope);
  Awaitable<std::optional<std::string>> hash_of_body(RequestHead& head);
  Awaitable<bool> sign(RequestHead& head, Outgoing& outgoing);
  Awaitable<bool> swap_secret(RequestHead& head, const RequestJudgement& judgement, Outgoing& outgoing);
  Awaitable<bool> transfer(Outgoing& outgoing);
  Awaitable<bool> send_head(Outgoing& outgoing);
  std::shared_ptr<Sending> begin_body(const Outgoing& outgoing);
  Awaitable<bool> no_response(Outgoing& outgoing, std::shared_ptr<Sending> sending);
  Awaitable<void> end_body(std::shared_ptr<Sending> sending);
  Awaitable<void> send_body(std::shared_ptr<Sending> sending, BodySpec spec);
  Awaitable<std::optional<ResponseHead>> response_head(const Outgoing& outgoing);
  Awaitable<bool> respond(Outgoing& outgoing, ResponseHead head, std::shared_ptr<Sending> sending);
  Awaitable<void> speak_websocket();

  GuestConnection& connection_;
  Stream& guest_;
  Reader& reader_;
  Kind kind_;
  std::unique_ptr<Reader> server_reader_;
  bool server_used_ = false;
  bool refused_ = false;  // the guest has its answer
  std::string fault_;     // of the last response that was none
};

}  // namespace anchorhold::egress
