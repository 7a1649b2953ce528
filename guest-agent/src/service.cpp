// The calls that are one question and one answer.
#include "service.h"

#include <algorithm>
#include <fmt/format.h>
#include <signal.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "reactor.h"

namespace anchorhold::guest {
namespace {

// A call whose body runs on the agent's thread and answers at once.
template <typename Body>
grpc::ServerUnaryReactor* at_once(AgentState& state, grpc::CallbackServerContext* context, Body body) {
  auto* reactor = context->DefaultReactor();
  state.loop.post([&state, reactor, body = std::move(body)] {
    Status status = greeted(state);
    if (status) status = body(state);
    reactor->Finish(to_grpc(status));
  });
  return reactor;
}

// A call whose body may block; runs on a worker.
template <typename Body>
grpc::ServerUnaryReactor* on_worker(AgentState& state, grpc::CallbackServerContext* context, Body body) {
  auto* reactor = context->DefaultReactor();
  state.loop.post([&state, reactor, body = std::move(body)] {
    if (auto status = greeted(state); !status) return reactor->Finish(to_grpc(status));
    state.system_workers.post([&state, reactor, body] { reactor->Finish(to_grpc(body(state.system))); });
  });
  return reactor;
}

class WaitReactor final : public LoopReactor<grpc::ServerUnaryReactor> {
 public:
  WaitReactor(AgentState& state, std::string id, wire::WaitExecReply* reply)
      : LoopReactor(state), id_(std::move(id)), reply_(reply) {
    post([this] { begin(); });
  }

 private:
  void begin() {
    if (finished()) return;
    if (auto status = greeted(state_); !status) return finish(to_grpc(status));
    auto exec = state_.execs.find(id_);
    if (!exec) return finish(to_grpc(exec.error()));
    (*exec)->when_ended([this, alive = alive()](const wire::ExecStatus& status) {
      if (!*alive || finished()) return;
      *reply_->mutable_status() = status;
      finish(grpc::Status::OK);
    });
  }
  std::string id_;
  wire::WaitExecReply* reply_;
};

// Ends the commands, writes back, answers; and only when the answer is out, ends the guest.
class ShutdownReactor final : public LoopReactor<grpc::ServerUnaryReactor> {
 public:
  ShutdownReactor(AgentState& state, std::chrono::milliseconds grace) : LoopReactor(state), grace_(grace) {
    post([this] { begin(); });
  }
  ~ShutdownReactor() override {
    if (shutting_down_ && state_.on_shutdown) state_.on_shutdown();
  }

 private:
  void begin() {
    if (finished()) return;
    if (auto status = greeted(state_); !status) return finish(to_grpc(status));
    shutting_down_ = true;
    if (grace_.count() == 0) return kill_all();
    for (const auto& exec : state_.execs.all())
      (void)exec->signal(SIGTERM, wire::SignalExecRequest::SCOPE_TREE);
    state_.machinery.timers.after(grace_, [this, alive = alive()] {
      if (*alive) kill_all();
    });
  }
  void kill_all() {
    state_.execs.kill_all("the guest is shutting down", [this, alive = alive()] {
      state_.system_workers.post([&state = state_, this, alive] {
        state.system.write_back();
        state.loop.post([this, alive] {
          if (*alive) finish(grpc::Status::OK);
        });
      });
    });
  }
  std::chrono::milliseconds grace_;
  bool shutting_down_ = false;
};

}  // namespace

Status greeted(const AgentState& state) {
  if (!state.greeted) return fail(ErrorCode::failed_precondition, "Hello comes first");
  return {};
}

Result<std::uint32_t> negotiate(const wire::HelloRequest& request) {
  const auto& host = request.protocol();
  std::uint32_t chosen = std::min(host.highest(), highest_protocol);
  if (chosen < std::max(host.lowest(), lowest_protocol) || chosen == 0)
    return fail(
        ErrorCode::failed_precondition,
        fmt::format(
            "the host ({}) speaks versions {} to {} of the guest protocol, this guest ({}) versions {} to {}",
            request.host_version(), host.lowest(), host.highest(), ANCHORHOLD_VERSION, lowest_protocol,
            highest_protocol),
        "build the guest image again with this version of the host");
  return chosen;
}

grpc::ServerUnaryReactor* GuestService::Hello(grpc::CallbackServerContext* context,
                                              const wire::HelloRequest* request, wire::HelloReply* reply) {
  auto* reactor = context->DefaultReactor();
  state_.loop.post([this, reactor, request, reply] {
    constexpr std::size_t longest_token = 64;
    auto version = negotiate(*request);
    if (!version) return reactor->Finish(to_grpc(version.error()));
    if (request->session_token().size() > longest_token)
      return reactor->Finish(
          grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a token has at most 64 bytes"));
    if (state_.greeted && state_.session_token != request->session_token())
      return reactor->Finish(
          grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "this guest belongs to another session"));
    state_.greeted = true;
    state_.session_token = request->session_token();
    reply->set_protocol(*version);
    reply->mutable_guest_protocol()->set_lowest(lowest_protocol);
    reply->mutable_guest_protocol()->set_highest(highest_protocol);
    reply->set_guest_version(ANCHORHOLD_VERSION);
    utsname name{};
    uname(&name);
    reply->set_kernel(name.release);
    auto account = find_account("");
    reply->set_default_uid(account ? account->uid : default_uid);
    reply->set_memory_bytes(read_memory_info().total_bytes);
    reply->set_cpus(static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
    const GroupTree* groups = state_.machinery.groups;
    reply->set_tree_kill(groups != nullptr);
    reply->set_memory_limits(groups != nullptr && groups->memory_limits());
    reply->set_process_limits(groups != nullptr && groups->process_limits());
    reply->set_boot_monotonic_ns(state_.ready_monotonic_ns);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* GuestService::SignalExec(grpc::CallbackServerContext* context,
                                                   const wire::SignalExecRequest* request,
                                                   wire::SignalExecReply*) {
  return at_once(state_, context, [request](AgentState& state) -> Status {
    auto exec = ANCHORHOLD_TRY(state.execs.find(request->exec_id()));
    return exec->signal(request->signal(), request->scope());
  });
}

grpc::ServerUnaryReactor* GuestService::ResizeTerminal(grpc::CallbackServerContext* context,
                                                       const wire::ResizeTerminalRequest* request,
                                                       wire::ResizeTerminalReply*) {
  return at_once(state_, context, [request](AgentState& state) -> Status {
    auto exec = ANCHORHOLD_TRY(state.execs.find(request->exec_id()));
    return exec->resize(request->size());
  });
}

grpc::ServerUnaryReactor* GuestService::KillExec(grpc::CallbackServerContext* context,
                                                 const wire::KillExecRequest* request, wire::KillExecReply*) {
  return at_once(state_, context, [request](AgentState& state) -> Status {
    auto exec = ANCHORHOLD_TRY(state.execs.find(request->exec_id()));
    exec->kill(wire::ExecStatus::CAUSE_KILLED, "killed by the host");
    if (!request->forget()) return {};
    exec->when_ended([&state, id = exec->id()](const wire::ExecStatus&) {
      state.loop.post([&state, id] { state.execs.forget(id); });
    });
    return {};
  });
}

grpc::ServerUnaryReactor* GuestService::WaitExec(grpc::CallbackServerContext*,
                                                 const wire::WaitExecRequest* request,
                                                 wire::WaitExecReply* reply) {
  return new WaitReactor(state_, request->exec_id(), reply);
}

grpc::ServerUnaryReactor* GuestService::ListExecs(grpc::CallbackServerContext* context,
                                                  const wire::ListExecsRequest*,
                                                  wire::ListExecsReply* reply) {
  return at_once(state_, context, [reply](AgentState& state) -> Status {
    for (const auto& exec : state.execs.all()) *reply->add_execs() = exec->info();
    return {};
  });
}

grpc::ServerUnaryReactor* GuestService::SetClock(grpc::CallbackServerContext* context,
                                                 const wire::SetClockRequest* request,
                                                 wire::SetClockReply* reply) {
  return at_once(state_, context, [request, reply](AgentState& state) -> Status {
    reply->set_previous_unix_time_ns(ANCHORHOLD_TRY(state.system.set_clock(request->unix_time_ns())));
    return {};
  });
}

grpc::ServerUnaryReactor* GuestService::GetStatistics(grpc::CallbackServerContext* context,
                                                      const wire::GetStatisticsRequest*,
                                                      wire::GetStatisticsReply* reply) {
  return at_once(state_, context, [reply](AgentState& state) -> Status {
    fill_statistics(*reply);
    for (const auto& exec : state.execs.all()) *reply->add_execs() = exec->info();
    return {};
  });
}

grpc::ServerUnaryReactor* GuestService::Mount(grpc::CallbackServerContext* context,
                                              const wire::MountRequest* request, wire::MountReply* reply) {
  return on_worker(state_, context, [request, reply](System& system) -> Status {
    reply->set_path(ANCHORHOLD_TRY(system.mount_share(*request)));
    return {};
  });
}

grpc::ServerUnaryReactor* GuestService::Unmount(grpc::CallbackServerContext* context,
                                                const wire::UnmountRequest* request, wire::UnmountReply*) {
  return on_worker(state_, context, [request](System& system) {
    return system.unmount_share(request->name(), request->detach());
  });
}

grpc::ServerUnaryReactor* GuestService::Announce(grpc::CallbackServerContext* context,
                                                 const wire::AnnounceRequest* request, wire::AnnounceReply*) {
  return on_worker(state_, context, [request](System& system) { return system.announce(*request); });
}

grpc::ServerUnaryReactor* GuestService::ConfigureNetwork(grpc::CallbackServerContext* context,
                                                         const wire::ConfigureNetworkRequest* request,
                                                         wire::ConfigureNetworkReply*) {
  auto* reactor = context->DefaultReactor();
  state_.loop.post([&state = state_, reactor, request] {
    if (auto status = greeted(state); !status) return reactor->Finish(to_grpc(status));
    state.system_workers.post([&state, reactor, request] {
      auto environment = state.system.configure_network(request->authority_pem());
      state.loop.post([&state, reactor, environment = std::move(environment)] {
        if (!environment) return reactor->Finish(to_grpc(environment.error()));
        state.environment = *environment;
        reactor->Finish(grpc::Status::OK);
      });
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* GuestService::Shutdown(grpc::CallbackServerContext*,
                                                 const wire::ShutdownRequest* request, wire::ShutdownReply*) {
  constexpr std::uint32_t longest_grace_ms = 60'000;
  return new ShutdownReactor(state_,
                             std::chrono::milliseconds(std::min(request->grace_ms(), longest_grace_ms)));
}

}  // namespace anchorhold::guest
