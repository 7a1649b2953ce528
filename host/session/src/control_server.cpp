#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/executor.h"
#include "base/log.h"
#include "control_socket.h"
#include "control_words.h"
#include "egress/control.h"
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
constexpr std::size_t max_watchers = 16;

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

class QuestionsOfNobody final : public Questions {
 public:
  std::vector<Pending> pending() const override { return {}; }
  Result<Approval> answer(std::uint64_t, Approval, std::string_view) override {
    return fail(ErrorCode::not_found, "this session asks nothing");
  }
  std::uint64_t add_listener(std::function<void()>) override { return 0; }
  void remove_listener(std::uint64_t) override {}
};

// One watcher of the questions: it is written the whole list, and again when that has changed since. gRPC may
// call back from within StartWrite and Finish, so no lock is held then; and the call is gone once it is
// finished, so whoever is about to write finishes it after that.
class QuestionWriter final : public grpc::ServerWriteReactor<wire::QuestionList> {
 public:
  QuestionWriter(Questions& questions, std::function<void(QuestionWriter*)> done)
      : questions_(questions), done_(std::move(done)) {}

  void changed() {
    {
      std::lock_guard lock(mutex_);
      due_ = true;
    }
    write_if_due();
  }
  void end(const grpc::Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(ended_, true)) return;
      status_ = status;
      if (starting_ > 0) return;
    }
    Finish(status);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return end(grpc::Status::CANCELLED);
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
    }
    write_if_due();
  }
  void OnCancel() override { end(grpc::Status::CANCELLED); }
  void OnDone() override { done_(this); }

 private:
  void write_if_due() {
    {
      std::lock_guard lock(mutex_);
      if (writing_ || ended_ || !due_) return;
      due_ = false;
      writing_ = true;
      ++starting_;
    }
    list_.Clear();
    for (const auto& pending : questions_.pending()) to_wire(pending, *list_.add_questions());
    StartWrite(&list_);
    {
      std::lock_guard lock(mutex_);
      if (--starting_ > 0 || !ended_) return;
    }
    Finish(status_);
  }

  Questions& questions_;
  const std::function<void(QuestionWriter*)> done_;
  std::mutex mutex_;  // guards the next
  bool due_ = false, writing_ = false, ended_ = false;
  int starting_ = 0;         // how many are within write_if_due
  grpc::Status status_;      // once it is ended
  wire::QuestionList list_;  // of who writes
};

}  // namespace

struct ControlServer::State final : wire::Session::CallbackService {
  explicit State(ControlHandlers given) : handlers(std::move(given)) {}

  grpc::ServerUnaryReactor* Grant(grpc::CallbackServerContext* context, const wire::GrantRequest* request,
                                  wire::GrantReply* reply) override;
  grpc::ServerWriteReactor<wire::QuestionList>* WatchQuestions(
      grpc::CallbackServerContext* context, const wire::WatchQuestionsRequest* request) override;
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const wire::AnswerRequest* request,
                                   wire::AnswerReply* reply) override;
  grpc::ServerUnaryReactor* EgressPolicy(grpc::CallbackServerContext* context,
                                         const wire::EgressPolicyRequest* request,
                                         wire::EgressPolicyReply* reply) override;
  // Runs the work on the executor, unless too much waits for it already.
  grpc::ServerUnaryReactor* later(grpc::CallbackServerContext* context, SerialExecutor& where,
                                  std::function<Status()> work);
  Result<GrantedFolder> grant(const wire::GrantRequest& request);
  void accept_all();
  std::vector<std::shared_ptr<QuestionWriter>> all_watchers();
  void end_watchers();

  ControlHandlers handlers;
  std::filesystem::path socket;
  UniqueFd listening;
  UniqueFd wake;
  std::atomic<int> waiting = 0;
  std::unique_ptr<SerialExecutor> executor = std::make_unique<SerialExecutor>("control");
  // Of what must not wait for a grant.
  std::unique_ptr<SerialExecutor> answers = std::make_unique<SerialExecutor>("control answers");
  std::mutex watchers_mutex;  // guards the next
  std::map<QuestionWriter*, std::shared_ptr<QuestionWriter>> watchers;
  bool ending = false;
  std::uint64_t listener = 0;
  std::unique_ptr<grpc::Server> server;
  std::thread acceptor;
};

std::vector<std::shared_ptr<QuestionWriter>> ControlServer::State::all_watchers() {
  std::vector<std::shared_ptr<QuestionWriter>> all;
  std::lock_guard lock(watchers_mutex);
  for (const auto& [pointer, watcher] : watchers) all.push_back(watcher);
  return all;
}

void ControlServer::State::end_watchers() {
  if (handlers.questions) handlers.questions->remove_listener(listener);
  {
    std::lock_guard lock(watchers_mutex);
    ending = true;
  }
  for (const auto& watcher : all_watchers()) watcher->end({grpc::StatusCode::CANCELLED, "the session ends"});
}

grpc::ServerWriteReactor<wire::QuestionList>* ControlServer::State::WatchQuestions(
    grpc::CallbackServerContext*, const wire::WatchQuestionsRequest*) {
  static QuestionsOfNobody nobody;
  auto watcher = std::make_shared<QuestionWriter>(
      handlers.questions ? *handlers.questions : nobody, [this](QuestionWriter* done) {
        std::shared_ptr<QuestionWriter> last;
        std::lock_guard lock(watchers_mutex);
        if (auto found = watchers.find(done); found != watchers.end()) {
          last = std::move(found->second);
          watchers.erase(found);
        }
      });
  bool refused, full;
  {
    std::lock_guard lock(watchers_mutex);
    refused = ending;
    full = watchers.size() >= max_watchers;
    watchers.emplace(watcher.get(), watcher);
  }
  if (refused)
    watcher->end({grpc::StatusCode::CANCELLED, "the session ends"});
  else if (full)
    watcher->end({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watch the questions already"});
  else
    watcher->changed();
  return watcher.get();
}

grpc::ServerUnaryReactor* ControlServer::State::Grant(grpc::CallbackServerContext* context,
                                                      const wire::GrantRequest* request,
                                                      wire::GrantReply* reply) {
  return later(context, *executor, [this, request, reply]() -> Status {
    auto granted = ANCHORHOLD_TRY(grant(*request));
    reply->set_path(granted.host_path.string());
    reply->set_guest_path(granted.guest_path);
    return {};
  });
}

grpc::ServerUnaryReactor* ControlServer::State::later(grpc::CallbackServerContext* context,
                                                      SerialExecutor& where, std::function<Status()> work) {
  auto* reactor = context->DefaultReactor();
  if (++waiting > max_waiting) {
    --waiting;
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the session is asked too many things at once"});
    return reactor;
  }
  where.post([this, reactor, work = std::move(work)] {
    auto done = work();
    --waiting;
    reactor->Finish(vsock::to_grpc(done));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ControlServer::State::Answer(grpc::CallbackServerContext* context,
                                                       const wire::AnswerRequest* request,
                                                       wire::AnswerReply* reply) {
  return later(context, *answers, [this, request, reply]() -> Status {
    if (!handlers.questions) return fail(ErrorCode::not_found, "this session asks nothing");
    auto answer = approval_from(request->answer());
    if (!answer) return fail(ErrorCode::invalid_argument, "the request holds no answer that is known here");
    auto counts =
        ANCHORHOLD_TRY(handlers.questions->answer(request->number(), *answer, "by another program"));
    reply->set_answer(to_wire(counts));
    return {};
  });
}

grpc::ServerUnaryReactor* ControlServer::State::EgressPolicy(grpc::CallbackServerContext* context,
                                                             const wire::EgressPolicyRequest*,
                                                             wire::EgressPolicyReply* reply) {
  return later(context, *answers, [this, reply]() -> Status {
    if (!handlers.network)
      return fail(ErrorCode::failed_precondition, "the session has no way to the network");
    auto view = ANCHORHOLD_TRY(handlers.network());
    reply->set_rules(egress::encode_rules(view.rules));
    reply->set_person_present(view.person == policy::Person::present);
    reply->set_ask_timeout_ms(static_cast<std::uint64_t>(view.ask_timeout.count()));
    return {};
  });
}

Result<GrantedFolder> ControlServer::State::grant(const wire::GrantRequest& request) {
  auto mode = ANCHORHOLD_TRY(mode_from(request.mode()));
  auto path = ANCHORHOLD_TRY(path_from(request.path()));
  return handlers.grant(path, mode);
}

void ControlServer::State::accept_all() {
  for (;;) {
    pollfd entries[] = {{wake.get(), POLLIN, 0}, {listening.get(), POLLIN, 0}};
    if (poll(entries, 2, -1) < 0) continue;
    if (entries[0].revents != 0) return;
    UniqueFd connection(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
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
  if (made.handlers.questions)
    made.listener = made.handlers.questions->add_listener([&made] {
      made.answers->post([&made] {
        for (const auto& watcher : made.all_watchers()) watcher->changed();
      });
    });
  made.wake.reset(eventfd(0, EFD_CLOEXEC));
  if (!made.wake) return fail_errno(errno, "eventfd");
  auto path = control_socket(ANCHORHOLD_TRY(control_folder()), session);
  made.listening = ANCHORHOLD_TRY(listen_for_control(path));
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
  state_->listening.reset();
  state_->end_watchers();
  // No call begins any more; those that began are answered, and only then is their executor gone.
  state_->server->Shutdown();
  state_->server->Wait();
}

}  // namespace anchorhold::session
