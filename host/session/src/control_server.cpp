#include <atomic>
#include <cerrno>
#include <future>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/executor.h"
#include "base/log.h"
#include "control_socket.h"
#include "proto/host.grpc.pb.h"
#include "session/control.h"
#include "vsock/channel.h"

namespace anchorhold::session {
namespace {

namespace wire = ::anchorhold::host::v1;

constexpr std::size_t max_request_bytes = 16 * 1024;
constexpr std::size_t max_path_bytes = 4095;
// Questions that are not answered yet.
constexpr int max_waiting = 32;

Result<mounts::Mode> mode_from(wire::GrantMode mode) {
  switch (mode) {
    case wire::GRANT_MODE_READ_ONLY:
      return mounts::Mode::ro;
    case wire::GRANT_MODE_READ_WRITE:
      return mounts::Mode::rw;
    case wire::GRANT_MODE_READ_WRITE_NO_DELETE:
      return mounts::Mode::rw_no_delete;
    default:
      return fail(ErrorCode::invalid_argument, "the request names no mode that is known here");
  }
}

Result<std::filesystem::path> path_from(const std::string& bytes) {
  if (bytes.empty() || bytes[0] != '/' || bytes.size() > max_path_bytes ||
      bytes.find('\0') != std::string::npos)
    return fail(ErrorCode::invalid_argument, "the request's path is not an absolute path");
  return std::filesystem::path(bytes);
}

}  // namespace

struct ControlServer::State final : wire::Session::CallbackService {
  explicit State(ControlHandlers given) : handlers(std::move(given)) {}

  grpc::ServerUnaryReactor* Grant(grpc::CallbackServerContext* context, const wire::GrantRequest* request,
                                  wire::GrantReply* reply) override;
  Result<GrantedFolder> grant(const wire::GrantRequest& request);
  void accept_all();

  ControlHandlers handlers;
  std::filesystem::path socket;
  UniqueFd listener;
  UniqueFd wake;
  std::atomic<int> waiting = 0;
  std::unique_ptr<SerialExecutor> executor = std::make_unique<SerialExecutor>("control");
  std::unique_ptr<grpc::Server> server;
  std::thread acceptor;
};

grpc::ServerUnaryReactor* ControlServer::State::Grant(grpc::CallbackServerContext* context,
                                                      const wire::GrantRequest* request,
                                                      wire::GrantReply* reply) {
  auto* reactor = context->DefaultReactor();
  if (++waiting > max_waiting) {
    --waiting;
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the session is asked too many things at once"});
    return reactor;
  }
  executor->post([this, request, reply, reactor] {
    auto granted = grant(*request);
    if (granted) {
      reply->set_path(granted->host_path.string());
      reply->set_guest_path(granted->guest_path);
    }
    --waiting;
    reactor->Finish(granted ? grpc::Status::OK : vsock::to_grpc(granted.error()));
  });
  return reactor;
}

Result<GrantedFolder> ControlServer::State::grant(const wire::GrantRequest& request) {
  auto mode = ANCHORHOLD_TRY(mode_from(request.mode()));
  auto path = ANCHORHOLD_TRY(path_from(request.path()));
  return handlers.grant(path, mode);
}

void ControlServer::State::accept_all() {
  for (;;) {
    pollfd entries[] = {{wake.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
    if (poll(entries, 2, -1) < 0) continue;
    if (entries[0].revents != 0) return;
    UniqueFd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection || !is_own_user(connection.get())) continue;
    if (auto served = vsock::serve_stream(*server, std::move(connection)); !served)
      log_warning(served.error().message);
  }
}

Result<std::unique_ptr<ControlServer>> ControlServer::start(const SessionId& session,
                                                            ControlHandlers handlers) {
  auto state = std::make_unique<State>(std::move(handlers));
  grpc::ServerBuilder builder;
  vsock::ChannelLimits limits;
  limits.max_message_bytes = max_request_bytes;
  limits.max_buffered_bytes = 4u << 20;
  vsock::prepare_server(builder, limits);
  builder.RegisterService(state.get());
  state->server = builder.BuildAndStart();
  if (!state->server) return fail(ErrorCode::internal, "gRPC made no server");
  std::unique_ptr<ControlServer> server(new ControlServer(std::move(state)));
  State& made = *server->state_;
  made.wake.reset(eventfd(0, EFD_CLOEXEC));
  if (!made.wake) return fail_errno(errno, "eventfd");
  auto path = control_socket(ANCHORHOLD_TRY(control_folder()), session);
  made.listener = ANCHORHOLD_TRY(listen_for_control(path));
  made.socket = std::move(path);
  made.acceptor = std::thread([&made] { made.accept_all(); });
  return server;
}

ControlServer::ControlServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

ControlServer::~ControlServer() {
  if (!state_->socket.empty()) unlink(state_->socket.c_str());
  if (state_->acceptor.joinable()) {
    const std::uint64_t one = 1;
    (void)!write(state_->wake.get(), &one, sizeof one);
    state_->acceptor.join();
  }
  state_->listener.reset();
  // No call begins any more; those that began are answered, and only then is their executor gone.
  state_->server->Shutdown();
  state_->server->Wait();
}

}  // namespace anchorhold::session
