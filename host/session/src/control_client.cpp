#include <fmt/format.h>

#include "control_socket.h"
#include "control_words.h"
#include "egress/control.h"
#include "proto/host.grpc.pb.h"
#include "session/control.h"
#include "vsock/channel.h"

namespace anchorhold::session {
namespace {

namespace wire = ::anchorhold::host::v1;

// A guest may be starting, which a busy computer makes long.
constexpr std::chrono::minutes answer_limit{6};
constexpr std::chrono::minutes short_limit{1};

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

Error not_served(const SessionId& session) {
  return {ErrorCode::failed_precondition, fmt::format("session {} does not run", session.value()),
          "see which do: anchorhold sessions"};
}

}  // namespace

struct ControlClient::State {
  Error error_of(const grpc::Status& status) const;

  SessionId session;
  std::unique_ptr<wire::Session::Stub> stub;
};

ControlClient::ControlClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
ControlClient::ControlClient(ControlClient&&) noexcept = default;
ControlClient::~ControlClient() = default;

Result<ControlClient> ControlClient::connect(const SessionId& session) {
  auto connection = connect_to_control(control_socket(ANCHORHOLD_TRY(control_folder()), session));
  if (!connection && connection.error().code == ErrorCode::failed_precondition)
    return fail(not_served(session));
  if (!connection) return fail(std::move(connection).error());
  if (!is_own_user(connection->get()))
    return fail(ErrorCode::permission_denied,
                fmt::format("the door to session {} belongs to somebody else", session.value()));
  auto channel = ANCHORHOLD_TRY(vsock::channel_from_stream(std::move(*connection)));
  return ControlClient(std::make_unique<State>(State{session, wire::Session::NewStub(channel)}));
}

// What the transport says when the other end has gone meanwhile is not one of the session's own errors.
Error ControlClient::State::error_of(const grpc::Status& status) const {
  auto folder = control_folder();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty() && folder &&
      !connect_to_control(control_socket(*folder, session)))
    return not_served(session);
  return {vsock::code_of(status.error_code()), status.error_message(), status.error_details()};
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
  return fail(state_->error_of(status));
}

Result<std::vector<Questions::Pending>> ControlClient::questions() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + short_limit);
  auto stream = state_->stub->WatchQuestions(&context, wire::WatchQuestionsRequest());
  wire::QuestionList list;
  const bool got = stream->Read(&list);
  context.TryCancel();
  auto status = stream->Finish();
  if (!got) return fail(state_->error_of(status));
  std::vector<Questions::Pending> all;
  for (const auto& question : list.questions())
    if (auto known = from_wire(question, state_->session)) all.push_back(std::move(*known));
  return all;
}

Result<Approval> ControlClient::answer(std::uint64_t number, Approval answer) {
  wire::AnswerRequest request;
  request.set_number(number);
  request.set_answer(to_wire(answer));
  wire::AnswerReply reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + short_limit);
  auto status = state_->stub->Answer(&context, request, &reply);
  if (!status.ok()) return fail(state_->error_of(status));
  return approval_from(reply.answer()).value_or(Approval::deny);
}

Result<NetworkView> ControlClient::network() {
  wire::EgressPolicyReply reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + short_limit);
  auto status = state_->stub->EgressPolicy(&context, wire::EgressPolicyRequest(), &reply);
  if (!status.ok()) return fail(state_->error_of(status));
  NetworkView view;
  view.rules = ANCHORHOLD_TRY(egress::parse_rules(reply.rules()));
  view.person = reply.person_present() ? policy::Person::present : policy::Person::absent;
  view.ask_timeout = std::chrono::milliseconds(reply.ask_timeout_ms());
  return view;
}

}  // namespace anchorhold::session
