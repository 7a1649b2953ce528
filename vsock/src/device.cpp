#include "vsock/device.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <thread>
#include <unistd.h>

#include "base/paths.h"
#include "base/process.h"
#include "control_protocol.h"
#include "vsock/event_loop.h"
#include "vsock/ports.h"
#include "vsock/vhost_user.h"

namespace anchorhold::vsock {
namespace {

using Type = ControlMessage::Type;
constexpr std::chrono::seconds start_limit(20);
constexpr std::chrono::seconds answer_limit(10);

class ProcessVsockDevice final : public VsockDevice {
 public:
  ProcessVsockDevice(VsockDeviceSpec spec, VsockDeviceCallbacks callbacks, std::unique_ptr<EventLoop> loop,
                     UniqueFd control, Child child)
      : spec_(std::move(spec)),
        callbacks_(std::move(callbacks)),
        loop_(std::move(loop)),
        control_(std::move(control)),
        child_(std::move(child)) {}
  ~ProcessVsockDevice() override;

  Status serve();

  Status listen(std::uint32_t port, Accept accept) override;
  Status unlisten(std::uint32_t port) override;
  void dial(std::uint32_t port, std::chrono::milliseconds limit, Dialed dialed) override;
  Result<VsockStatistics> statistics() override;
  const std::filesystem::path& socket_path() const override { return spec_.socket_path; }
  int pid() const override { return child_.pid(); }
  int pidfd() const override { return child_.pidfd(); }

 private:
  struct PendingDial {
    Dialed dialed;
    UniqueFd timer;
    EventLoop::Watch timer_watch;
  };

  // On the loop's thread.
  void control_ready();
  void handle(ReceivedControl received);
  void start_dial(std::uint64_t id, std::uint32_t port, std::chrono::milliseconds limit, Dialed dialed);
  void finish_dial(std::uint64_t id, Result<UniqueFd> result);
  void process_ended();
  Error end_cause(ExitStatus status) const;

  Status send(const ControlMessage& message);

  VsockDeviceSpec spec_;
  VsockDeviceCallbacks callbacks_;
  std::unique_ptr<EventLoop> loop_;
  UniqueFd control_;
  Child child_;
  std::thread thread_;

  // The loop's thread only.
  EventLoop::Watch control_watch_;
  EventLoop::Watch pidfd_watch_;
  std::map<std::uint64_t, PendingDial> dials_;
  std::optional<ControlMessage> last_words_;

  std::mutex mutex_;  // guards what follows, and the order of messages
  bool over_ = false;
  Error over_cause_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint32_t, std::shared_ptr<Accept>> accepts_;
  std::map<std::uint64_t, std::promise<Result<VsockStatistics>>> questions_;
};

Status ProcessVsockDevice::serve() {
  control_watch_ = ANCHORHOLD_TRY(
      loop_->watch(control_.get(), ready::readable, [this](std::uint32_t) { control_ready(); }));
  pidfd_watch_ = ANCHORHOLD_TRY(
      loop_->watch(child_.pidfd(), ready::readable, [this](std::uint32_t) { process_ended(); }));
  thread_ = std::thread([this] { (void)loop_->run(); });
  return {};
}

ProcessVsockDevice::~ProcessVsockDevice() {
  loop_->stop({});
  if (thread_.joinable()) thread_.join();
  for (auto& [id, dial] : dials_) dial.dialed(fail(ErrorCode::cancelled, "the vsock device was closed"));
  for (auto& [id, question] : questions_)
    question.set_value(fail(ErrorCode::cancelled, "the vsock device was closed"));
  dials_.clear();
  control_watch_ = {};
  pidfd_watch_ = {};
  (void)unlink(spec_.socket_path.c_str());
}

Status ProcessVsockDevice::send(const ControlMessage& message) {
  if (over_) return fail(over_cause_);
  return send_control(control_.get(), message);
}

Status ProcessVsockDevice::listen(std::uint32_t port, Accept accept) {
  std::lock_guard lock(mutex_);
  if (accepts_.contains(port))
    return fail(ErrorCode::already_exists, fmt::format("vsock port {} is open already", port));
  ControlMessage message;
  message.type = Type::listen;
  message.port = port;
  if (carries_grpc(port)) message.values[0] = max_grpc_message_bytes;
  ANCHORHOLD_CHECK(send(message));
  accepts_[port] = std::make_shared<Accept>(std::move(accept));
  return {};
}

Status ProcessVsockDevice::unlisten(std::uint32_t port) {
  std::lock_guard lock(mutex_);
  if (accepts_.erase(port) == 0)
    return fail(ErrorCode::not_found, fmt::format("vsock port {} is not open", port));
  ControlMessage message;
  message.type = Type::unlisten;
  message.port = port;
  return send(message);
}

void ProcessVsockDevice::dial(std::uint32_t port, std::chrono::milliseconds limit, Dialed dialed) {
  std::uint64_t id;
  {
    std::lock_guard lock(mutex_);
    id = next_id_++;
  }
  auto shared = std::make_shared<Dialed>(std::move(dialed));
  loop_->post([this, id, port, limit, shared] { start_dial(id, port, limit, std::move(*shared)); });
}

void ProcessVsockDevice::start_dial(std::uint64_t id, std::uint32_t port, std::chrono::milliseconds limit,
                                    Dialed dialed) {
  PendingDial pending{
      std::move(dialed), UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)), {}};
  auto wait = std::max<std::chrono::milliseconds>(limit, std::chrono::milliseconds(1));
  itimerspec when{};
  when.it_value.tv_sec = wait.count() / 1000;
  when.it_value.tv_nsec = wait.count() % 1000 * 1'000'000;
  if (!pending.timer || timerfd_settime(pending.timer.get(), 0, &when, nullptr) != 0)
    return pending.dialed(fail_errno(errno, "a timer"));
  auto watch = loop_->watch(pending.timer.get(), ready::readable, [this, id, port](std::uint32_t) {
    ControlMessage message;
    message.type = Type::cancel;
    message.id = id;
    {
      std::lock_guard lock(mutex_);
      (void)send(message);
    }
    finish_dial(id, fail(ErrorCode::deadline_exceeded,
                         fmt::format("the guest did not answer on vsock port {}", port)));
  });
  if (!watch) return pending.dialed(fail(std::move(watch).error()));
  pending.timer_watch = std::move(*watch);
  dials_.emplace(id, std::move(pending));
  ControlMessage message;
  message.type = Type::dial;
  message.port = port;
  message.id = id;
  Status sent;
  {
    std::lock_guard lock(mutex_);
    sent = send(message);
  }
  if (!sent) finish_dial(id, fail(std::move(sent).error()));
}

void ProcessVsockDevice::finish_dial(std::uint64_t id, Result<UniqueFd> result) {
  auto node = dials_.extract(id);
  if (!node) return;  // it was too late, and the stream closes here
  PendingDial& pending = node.mapped();
  pending.timer_watch = {};
  pending.dialed(std::move(result));
}

Result<VsockStatistics> ProcessVsockDevice::statistics() {
  std::future<Result<VsockStatistics>> answer;
  std::uint64_t id;
  {
    std::lock_guard lock(mutex_);
    id = next_id_++;
    ControlMessage message;
    message.type = Type::ask_statistics;
    message.id = id;
    ANCHORHOLD_CHECK(send(message));
    answer = questions_[id].get_future();
  }
  if (answer.wait_for(answer_limit) == std::future_status::ready) return answer.get();
  std::lock_guard lock(mutex_);
  if (questions_.erase(id) == 0) return answer.get();
  return fail(ErrorCode::deadline_exceeded, "the vsock device does not answer");
}

void ProcessVsockDevice::control_ready() {
  for (;;) {
    auto received = receive_control(control_.get());
    if (!received) {
      control_watch_ = {};
      // A process that closes its side ends; one that sends nonsense is not ours to trust any more.
      if (received.error().code != ErrorCode::unavailable) child_.kill(SIGKILL);
      return;
    }
    if (!*received) return;
    handle(std::move(**received));
  }
}

void ProcessVsockDevice::handle(ReceivedControl received) {
  const auto& message = received.message;
  switch (message.type) {
    case Type::accepted: {
      std::shared_ptr<Accept> accept;
      {
        std::lock_guard lock(mutex_);
        if (auto found = accepts_.find(message.port); found != accepts_.end()) accept = found->second;
      }
      // The port may have been closed while the guest connected: then the stream closes here.
      if (accept && received.descriptor) (*accept)(std::move(received.descriptor));
      return;
    }
    case Type::refused:
      if (callbacks_.refused) callbacks_.refused(message.port, message.values[0]);
      return;
    case Type::violated:
      if (callbacks_.violated) callbacks_.violated(message.port, message.text());
      return;
    case Type::dialed:
      if (received.descriptor) finish_dial(message.id, std::move(received.descriptor));
      return;
    case Type::dial_failed:
      return finish_dial(message.id, fail(ErrorCode::unavailable, message.text()));
    case Type::statistics: {
      const auto& v = message.values;
      VsockStatistics s{v[0], v[1], static_cast<std::uint32_t>(v[2]), v[3], v[4], v[5], v[6], v[7]};
      std::lock_guard lock(mutex_);
      if (auto node = questions_.extract(message.id)) node.mapped().set_value(s);
      return;
    }
    case Type::ended:
      last_words_ = message;
      return;
    default:
      return;
  }
}

Error ProcessVsockDevice::end_cause(ExitStatus status) const {
  if (last_words_ && last_words_->code == ControlMessage::no_error)
    return Error{ErrorCode::unavailable, "the virtual machine closed its vsock device", {}};
  if (last_words_ && last_words_->code <= static_cast<std::uint32_t>(ErrorCode::internal))
    return Error{static_cast<ErrorCode>(last_words_->code), "vsock device: " + last_words_->text(), {}};
  return Error{
      ErrorCode::unavailable, fmt::format("the vsock device's process ended: {}", to_string(status)), {}};
}

void ProcessVsockDevice::process_ended() {
  pidfd_watch_ = {};
  // What it said before it ended is still in the socket.
  if (control_watch_) control_ready();
  control_watch_ = {};
  Error cause = end_cause(child_.wait());
  std::map<std::uint64_t, std::promise<Result<VsockStatistics>>> questions;
  {
    std::lock_guard lock(mutex_);
    over_ = true;
    over_cause_ = cause;
    questions.swap(questions_);
  }
  for (auto& [id, question] : questions) question.set_value(fail(cause));
  while (!dials_.empty()) finish_dial(dials_.begin()->first, fail(cause));
  if (callbacks_.ended) callbacks_.ended(cause);
}

}  // namespace

Result<UniqueFd> VsockDevice::dial(std::uint32_t port, std::chrono::milliseconds limit) {
  auto promise = std::make_shared<std::promise<Result<UniqueFd>>>();
  auto answer = promise->get_future();
  dial(port, limit, [promise](Result<UniqueFd> stream) { promise->set_value(std::move(stream)); });
  return answer.get();
}

Result<std::unique_ptr<VsockDevice>> VsockDevice::start(VsockDeviceSpec spec,
                                                        VsockDeviceCallbacks callbacks) {
  if (spec.program.empty()) spec.program = ANCHORHOLD_TRY(own_program("anchorhold-vsockd"));
  auto listener = ANCHORHOLD_TRY(listen_for_front_end(spec.socket_path));
  auto [ours, theirs] = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  SpawnSpec spawn;
  spawn.argv = {spec.program,    "--cid", std::to_string(spec.guest_cid), "--control-fd", "3",
                "--listener-fd", "4"};
  if (spec.allow_weak) spawn.argv.push_back("--allow-weak");
  spawn.environment.emplace();
  spawn.descriptors = {{2, 2}, {theirs.get(), 3}, {listener.get(), 4}};
  // Not with the thread that starts it, which may be a short-lived one: the device ends when the control
  // socket closes, as it does when this process ends in whatever way.
  spawn.die_with_parent = false;
  auto child = ANCHORHOLD_TRY(Child::spawn(spawn));
  theirs.reset();
  listener.reset();
  pollfd waiting{.fd = ours.get(), .events = POLLIN, .revents = 0};
  int ready_count;
  do {
    ready_count = poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(start_limit).count()));
  } while (ready_count < 0 && errno == EINTR);
  auto first = receive_control(ours.get());
  if (!first || !*first || (*first)->message.type != Type::sealed) {
    (void)unlink(spec.socket_path.c_str());
    auto status = child.wait(std::chrono::seconds(1));
    return fail(ErrorCode::failed_precondition, fmt::format("{} did not start: {}", spec.program.string(),
                                                            status ? to_string(*status) : "no answer"));
  }
  auto loop = ANCHORHOLD_TRY(EventLoop::create());
  auto device = std::make_unique<ProcessVsockDevice>(std::move(spec), std::move(callbacks), std::move(loop),
                                                     std::move(ours), std::move(child));
  ANCHORHOLD_CHECK(device->serve());
  return device;
}

}  // namespace anchorhold::vsock
