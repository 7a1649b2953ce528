#include "guest_agent/agent.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/vm_sockets.h>
#include <map>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <time.h>
#include <unistd.h>

#include "boot.h"
#include "service.h"
#include "vsock/channel.h"
#include "vsock/ports.h"

namespace anchorhold::guest {
namespace {

// A command's arguments are at most 2 MiB; everything else is far below.
constexpr std::size_t most_message_bytes = 4u << 20;
// How much of a command's input may wait here for the command to read it.
constexpr std::size_t input_window_bytes = 128 * 1024;
constexpr int most_calls = 4096;

void report(std::string_view text) {
  fmt::print(stderr, "anchorhold-guest: {}\n", text);
}

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Result<UniqueFd> dial_host() {
  UniqueFd stream(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!stream) return fail_errno(errno, "making a vsock socket");
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = vsock::host_cid;
  address.svm_port = vsock::host_port::agent;
  if (connect(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail_errno(errno, "dialling the host");
  return stream;
}

std::unique_ptr<GroupTree> make_groups(Role role) {
  auto groups = role == Role::guest ? GroupTree::own(group_mount, read_memory_info().total_bytes)
                                    : GroupTree::below_own_group();
  if (groups) return std::move(*groups);
  report("no control groups: " + groups.error().message);
  return nullptr;
}

// A process takes about a megabyte at least, so that memory ends before a larger limit is reached.
std::uint32_t default_process_limit(const GroupTree* groups) {
  if (groups == nullptr || !groups->process_limits()) return 0;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(read_memory_info().total_bytes >> 20, 256, 4096));
}

class Agent {
 public:
  static Result<std::unique_ptr<Agent>> create(Role role) {
    std::unique_ptr<Agent> agent(new Agent(role));
    agent->loop_ = ANCHORHOLD_TRY(vsock::EventLoop::create());
    agent->timers_ = ANCHORHOLD_TRY(Timers::create(*agent->loop_));
    agent->reaper_ = ANCHORHOLD_TRY(Reaper::create(*agent->loop_));
    agent->groups_ = make_groups(role);
    agent->machinery_.emplace(Machinery{*agent->loop_, *agent->timers_, agent->starters_, *agent->reaper_,
                                        agent->groups_.get(), default_process_limit(agent->groups_.get()),
                                        &agent->environment_});
    agent->execs_.emplace(*agent->machinery_);
    agent->state_.emplace(AgentState{*agent->loop_, *agent->machinery_, *agent->execs_, *agent->system_,
                                     agent->system_workers_, agent->environment_,
                                     [self = agent.get()] { self->on_shutdown(); }});
    agent->service_.emplace(*agent->state_);
    ANCHORHOLD_CHECK(agent->start_server());
    return agent;
  }

  ~Agent() {
    if (!server_) return;
    // gRPC's last callbacks need the loop, so it runs on while the server ends on another thread.
    std::thread ending([this] {
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
      loop_->post([this] { execs_->kill_all("the agent ends", [this] { loop_->stop({}); }); });
    });
    (void)loop_->run();
    ending.join();
  }

  Status serve(UniqueFd stream) {
    // gRPC closes its own descriptor; this one tells when the other side has gone.
    connection_ = ANCHORHOLD_TRY(duplicate(stream.get()));
    hang_up_ = ANCHORHOLD_TRY(loop_->watch(connection_.get(), vsock::ready::peer_done | vsock::ready::edge,
                                           [this](std::uint32_t events) { on_connection(events); }));
    state_->ready_monotonic_ns = monotonic_ns();
    return vsock::serve_stream(*server_, std::move(stream));
  }

  void dial() {
    system_workers_.post([this] {
      auto stream = dial_host();
      loop_->post([this, stream = std::make_shared<Result<UniqueFd>>(std::move(stream))] {
        Status served = *stream ? serve(std::move(**stream)) : Status(fail(stream->error()));
        if (served) {
          redial_delay_ = first_redial_delay;
          return;
        }
        if (redial_delay_ == first_redial_delay) report(served.error().message);
        timers_->after(redial_delay_, [this] { dial(); });
        redial_delay_ = std::min(redial_delay_ * 2, last_redial_delay);
      });
    });
  }

  Status run() { return loop_->run(); }
  System& system() { return *system_; }

 private:
  static constexpr std::chrono::milliseconds first_redial_delay{50};
  static constexpr std::chrono::milliseconds last_redial_delay{2000};

  explicit Agent(Role role) : role_(role), system_(role == Role::guest ? guest_system() : hosted_system()) {}

  Status start_server() {
    grpc::ServerBuilder builder;
    vsock::ChannelLimits limits;
    limits.max_message_bytes = most_message_bytes;
    limits.stream_window_bytes = input_window_bytes;
    vsock::prepare_server(builder, limits);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, most_calls);
    builder.RegisterService(&*service_);
    server_ = builder.BuildAndStart();
    if (!server_) return fail(ErrorCode::internal, "gRPC made no server");
    return {};
  }

  void on_connection(std::uint32_t events) {
    if (!(events & (vsock::ready::peer_done | vsock::ready::hangup | vsock::ready::error))) return;
    hang_up_ = {};
    connection_.reset();
    if (role_ == Role::hosted) return loop_->stop({});
    dial();
  }

  void on_shutdown() {
    if (role_ == Role::hosted) return loop_->stop({});
    // The answer is in the socket; the device takes it from there while the workers write back once more.
    system_workers_.post([this] { system_->power_off(); });
  }

  Role role_;
  std::unique_ptr<vsock::EventLoop> loop_;
  std::unique_ptr<Timers> timers_;
  std::unique_ptr<Reaper> reaper_;
  std::unique_ptr<GroupTree> groups_;
  std::unique_ptr<System> system_;
  std::map<std::string, std::string> environment_;
  std::optional<Machinery> machinery_;
  std::optional<ExecTable> execs_;
  std::optional<AgentState> state_;
  std::optional<GuestService> service_;
  std::unique_ptr<grpc::Server> server_;
  UniqueFd connection_;
  vsock::EventLoop::Watch hang_up_;
  std::chrono::milliseconds redial_delay_ = first_redial_delay;
  // Last, so that they end first: their jobs use all of the above.
  Workers starters_{"starter", 4};
  Workers system_workers_{"system", 2};
};

void raise_descriptor_limit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  constexpr rlim_t wanted = 65536;
  rlim_t most = geteuid() == 0 ? std::max(files.rlim_max, wanted) : files.rlim_max;
  files = {std::min(most, wanted), most};
  (void)setrlimit(RLIMIT_NOFILE, &files);
}

// The kernel gives PID 1 its console; without one there is still no number that a command's pipe may take.
void open_standard_descriptors() {
  for (;;) {
    int fd = open("/dev/console", O_RDWR | O_NOCTTY);
    if (fd < 0) fd = open("/dev/null", O_RDWR);
    if (fd < 0) return;
    if (fd > 2) {
      close(fd);
      return;
    }
  }
}

}  // namespace

Status prepare_process(Role role) {
  if (role == Role::hosted && prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return fail_errno(errno, "taking orphans");
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  if (int error = pthread_sigmask(SIG_BLOCK, &children, nullptr))
    return fail_errno(error, "blocking SIGCHLD");
  if (signal(SIGPIPE, SIG_IGN) == SIG_ERR) return fail_errno(errno, "ignoring SIGPIPE");
  raise_descriptor_limit();
  open_standard_descriptors();
  if (role == Role::guest) {
    UniqueFd protection(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    if (protection) (void)!write(protection.get(), "-1000", 5);
  }
  return {};
}

Status boot_guest() {
  return boot();
}

Status run_agent(Role role, UniqueFd stream) {
  auto agent = ANCHORHOLD_TRY(Agent::create(role));
  if (role == Role::hosted)
    ANCHORHOLD_CHECK(agent->serve(std::move(stream)));
  else
    agent->dial();
  return agent->run();
}

}  // namespace anchorhold::guest
