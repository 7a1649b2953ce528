// HTTP/2 from end to end on an opened connection: each request of the guest is judged alone and becomes a
// request to the server. Bodies, interim responses and trailers pass as they come, so gRPC works. A server
// that is asked nothing for a while is let go of, and dialled anew for the next request.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "egress/body.h"
#include "egress/git.h"
#include "egress/http2_head.h"
#include "egress/request_judge.h"
#include "http2_session.h"
#include "opened_connection.h"
#include "refusal.h"

namespace anchorhold::egress {

class Http2Bridge {
 public:
  Http2Bridge(OpenedConnection& connection, Stream& guest);
  ~Http2Bridge();
  // Until either side has ended; nothing of it runs after.
  Awaitable<void> run();
  // It rested as long as it may: the server is let go of, and the second time the guest.
  void time_is_over();

 private:
  // Bytes in one direction.
  struct Flow {
    std::string waiting;
    bool ends = false;
    std::vector<Field> trailers;
    std::unique_ptr<BodyFilter> filter;
    std::uint64_t total = 0;
  };
  struct Exchange {
    std::int32_t guest_id = 0, server_id = -1;
    RequestHead head;
    Flow up, down;
    bool refused = false;                   // the guest is answered from here
    std::optional<RefusalResponse> at_end;  // that answer, once the guest has sent everything
    bool responded = false;                 // the server's final response has begun
    bool credential = false;
    std::vector<std::string> secret_patterns;
    std::optional<GitPushReader> push;  // while the commands of a push are read, and after
    bool commands_whole = false;
    std::string held;  // of its body, until it is admitted
    std::optional<std::uint64_t> most;
    std::string refused_beyond;
    ~Exchange();
  };
  using Shared = std::shared_ptr<Exchange>;

  class GuestEvents;
  class ServerEvents;

  // Of the guest.
  void take_request(std::int32_t id, std::vector<Field> fields, bool ends);
  void take_body(const Shared& exchange, std::string_view bytes);
  void end_request(const Shared& exchange, std::vector<Field> trailers);
  void guest_closed(std::int32_t id, std::uint32_t error);
  // Of the server.
  void take_response(const Shared& exchange, std::vector<Field> fields, bool ends);
  void take_response_body(const Shared& exchange, std::string_view bytes);
  void end_response(const Shared& exchange, std::vector<Field> trailers);
  void server_closed(std::int32_t id, std::uint32_t error);

  void judge(const Shared& exchange);
  void begin_push(const Shared& exchange, const GitRequest& request);
  void take_commands(const Shared& exchange, std::string_view bytes, bool ends);
  Awaitable<void> reach(Shared exchange, RequestJudgement judgement, Decided decided);
  void send(const Shared& exchange, RequestJudgement judgement, Decided decided);
  Awaitable<void> admit_git(Shared exchange, RequestJudgement judgement, Decided decided);
  void go_on(const Shared& exchange, RequestJudgement judgement, Decided decided);
  void add_body(const Shared& exchange, std::string_view bytes);
  void forward(const Shared& exchange, std::ptrdiff_t secret_field);
  Awaitable<void> swap_secret(Shared exchange, RequestJudgement judgement, Decided decided);
  void refuse(const Shared& exchange, unsigned status, EventReport report, RefusalForm form = {});
  void answer_refused(const Shared& exchange, RefusalResponse response);
  Awaitable<void> refuse_recorded(Shared exchange, unsigned status, EventReport report, RefusalForm form);
  Shared of_guest(std::int32_t id);
  Shared of_server(std::int32_t id);
  void begin_server();
  void begin(const std::shared_ptr<Http2Session>& session);
  Awaitable<void> side(std::shared_ptr<Http2Session> session, bool reads);
  Awaitable<void> say_goodbye();
  void rest_if_idle();
  void server_is_gone();
  void guest_is_gone();

  OpenedConnection& connection_;
  Stream& guest_stream_;
  std::unique_ptr<GuestEvents> guest_events_;
  std::unique_ptr<ServerEvents> server_events_;
  std::shared_ptr<Http2Session> guest_, server_;  // no server: it is let go of
  std::map<std::int32_t, Shared> by_guest_, by_server_;
  Signal ended_, dialled_, guest_gone_;
  bool dialling_ = false;
  std::optional<Refusal> unreachable_;  // why, when it was dialled last
  bool server_gone_ = false;
  int running_ = 0;  // coroutines that use this
};

}  // namespace anchorhold::egress
