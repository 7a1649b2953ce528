#include <fmt/format.h>

#include "control_socket.h"
#include "proto/host.grpc.pb.h"
#include "session/control.h"
#include "vsock/channel.h"

namespace anchorhold::session {
namespace {

namespace wire = ::anchorhold::host::v1;

// A guest may be starting, which a busy computer makes long.
constexpr std::chrono::minutes answer_limit{6};

wire::GrantMode to_wire(mounts::Mode mode) {
  switch (mode) {
    case mounts::Mode::ro:
      return wire::GRANT_MODE_READ_ONLY;
    case mounts::Mode::rw:
      return wire::GRANT_MODE_READ_WRITE;
    case mounts::Mode::rw_no_delete:
      return wire::GRANT_MODE_READ_WRITE_NO_DELETE;
  }
  return wire::GRANT_MODE_UNSPECIFIED;
}

tl::unexpected<Error> not_served(const SessionId& session) {
  return fail(ErrorCode::failed_precondition, fmt::format("session {} does not run", session.value()),
              "see which do: anchorhold sessions");
}

}  // namespace

struct ControlClient::State {
  SessionId session;
  std::unique_ptr<wire::Session::Stub> stub;
};

ControlClient::ControlClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
ControlClient::ControlClient(ControlClient&&) noexcept = default;
ControlClient::~ControlClient() = default;

Result<ControlClient> ControlClient::connect(const SessionId& session) {
  auto connection = connect_to_control(control_socket(ANCHORHOLD_TRY(control_folder()), session));
  if (!connection && connection.error().code == ErrorCode::failed_precondition) return not_served(session);
  if (!connection) return fail(std::move(connection).error());
  if (!is_own_user(connection->get()))
    return fail(ErrorCode::permission_denied,
                fmt::format("the door to session {} belongs to somebody else", session.value()));
  auto channel = ANCHORHOLD_TRY(vsock::channel_from_stream(std::move(*connection)));
  return ControlClient(std::make_unique<State>(State{session, wire::Session::NewStub(channel)}));
}

Result<GrantedFolder> ControlClient::grant(const std::filesystem::path& path, mounts::Mode mode) {
  std::error_code error;
  auto absolute = std::filesystem::absolute(path, error);
  if (error) return fail(ErrorCode::invalid_argument, fmt::format("{}: {}", path.string(), error.message()));
  wire::GrantRequest request;
  request.set_path(absolute.string());
  request.set_mode(to_wire(mode));
  wire::GrantReply reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + answer_limit);
  auto status = state_->stub->Grant(&context, request, &reply);
  if (status.ok()) return GrantedFolder{reply.path(), reply.guest_path()};
  // What the transport says when the other end has gone meanwhile; the session's own errors have other words.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty() &&
      !connect_to_control(control_socket(ANCHORHOLD_TRY(control_folder()), state_->session)))
    return not_served(state_->session);
  return fail(vsock::code_of(status.error_code()), status.error_message(), status.error_details());
}

}  // namespace anchorhold::session
