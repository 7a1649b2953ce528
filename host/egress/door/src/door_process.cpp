// The thread that keeps one egress process running: starts it, passes messages both ways, and starts it anew
// when it ends.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/secret.h"
#include "process_door.h"

namespace anchorhold::egress {

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds start_limit(20);
constexpr std::chrono::seconds end_limit(5);
constexpr std::chrono::seconds long_life(60);

}  // namespace

Status ProcessDoor::begin() {
  if (!wake_) return fail_errno(errno, "eventfd");
  auto started = started_.get_future();
  // It keeps this object until it ends, and end() joins it.
  thread_ = std::thread([this] { run(); });
  return started.get();
}

void ProcessDoor::end() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void ProcessDoor::run() {
  auto first = start_process();
  bool begun = first.has_value();
  started_.set_value(std::move(first));
  if (!begun) return;
  for (;;) {
    serve_process();
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    process_ended();
    if (!pause_before_restart()) break;
    while (!start_process())
      if (!pause_before_restart()) return;
    if (host_.restarted) host_.restarted(ca_certificate_pem());
  }
  control_.reset();  // it ends by itself when the host is gone
  if (child_ && !child_->wait(std::chrono::milliseconds(end_limit))) child_->kill(SIGKILL);
}

Result<std::string> ProcessDoor::await_sealed(int control) {
  auto end = steady_clock::now() + start_limit;
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now());
    pollfd entries[] = {{control, POLLIN, 0}};
    int count = poll(entries, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(ErrorCode::deadline_exceeded, "it did not get ready");
    auto message = ANCHORHOLD_TRY(receive_control(control));
    if (!message) continue;
    if (message->type != ControlType::sealed)
      return fail(ErrorCode::data_loss, "it spoke before it was sealed");
    return std::move(message->payload);
  }
}

Status ProcessDoor::start_process() {
  auto program = spec_.program;
  if (program.empty()) program = ANCHORHOLD_TRY(own_program("anchorhold-egressd"));
  auto [ours, theirs] = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  SpawnSpec spawn;
  spawn.argv = {program.string(), "--dns-timeout-ms", std::to_string(spec_.resolver.timeout.count()),
                "--dns-attempts", std::to_string(spec_.resolver.attempts)};
  if (spec_.allow_weak) spawn.argv.push_back("--allow-weak");
  spawn.environment.emplace();
  spawn.descriptors = {{2, 2}, {theirs.get(), egressd_fd::control}};
  child_.emplace(ANCHORHOLD_TRY(Child::spawn(spawn)));
  theirs.reset();
  auto ca = await_sealed(ours.get());
  if (!ca) {
    child_->kill(SIGKILL);
    auto status = child_->wait();
    return fail(ErrorCode::failed_precondition, fmt::format("the egress process could not start: {} ({})",
                                                            ca.error().message, to_string(status)));
  }
  control_ = std::move(ours);
  started_at_ = steady_clock::now();
  last_words_.clear();
  std::lock_guard lock(mutex_);
  ca_ = std::move(*ca);
  pid_ = child_->pid();
  ++process_;
  // Before any stream: those that wait come after these.
  std::deque<ControlMessage> streams;
  for (auto& message : outgoing_)
    if (message.type == ControlType::stream) streams.push_back(std::move(message));
  outgoing_.clear();
  ControlMessage trust{.type = ControlType::trust};
  trust.descriptor = ANCHORHOLD_TRY(text_descriptor(trust_));
  outgoing_.push_back(std::move(trust));
  ANCHORHOLD_CHECK(send_configuration());
  for (auto& message : streams) outgoing_.push_back(std::move(message));
  return {};
}

// False when the process is gone.
bool ProcessDoor::flush() {
  std::lock_guard lock(mutex_);
  while (!outgoing_.empty()) {
    auto sent = send_control(control_.get(), outgoing_.front());
    if (!sent && sent.error().code == ErrorCode::resource_exhausted) return true;
    if (!sent) return false;
    if (outgoing_.front().type == ControlType::secret) wipe(outgoing_.front().payload);
    outgoing_.pop_front();
  }
  return true;
}

void ProcessDoor::serve_process() {
  for (;;) {
    bool alive = flush();
    bool waits_to_send;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      waits_to_send = alive && !outgoing_.empty();
    }
    short events = static_cast<short>(POLLIN | (waits_to_send ? POLLOUT : 0));
    pollfd entries[] = {{wake_.get(), POLLIN, 0}, {child_->pidfd(), POLLIN, 0}, {control_.get(), events, 0}};
    if (poll(entries, 3, -1) < 0) continue;
    if (entries[0].revents) {
      std::uint64_t count;
      (void)!read(wake_.get(), &count, sizeof count);
    }
    // What it said before it ended comes first.
    bool speaks = true;
    if (entries[2].revents & (POLLIN | POLLHUP | POLLERR)) speaks = take_messages();
    if (entries[1].revents || !speaks) {
      // One that says what is no message is not ours any more.
      if (!entries[1].revents) child_->kill(SIGKILL);
      return;
    }
  }
}

bool ProcessDoor::take_messages() {
  // Not for ever: answers must get out, too.
  for (int i = 0; i < 256; ++i) {
    auto message = receive_control(control_.get());
    if (!message) {
      if (message.error().code != ErrorCode::unavailable) last_words_ = message.error().message;
      return false;
    }
    if (!*message) return true;
    take(std::move(**message));
  }
  return true;
}

void ProcessDoor::process_ended() {
  if (!child_->wait(end_limit)) child_->kill(SIGKILL);
  auto status = child_->wait();
  control_.reset();
  std::set<std::uint64_t> void_questions;
  {
    std::lock_guard lock(mutex_);
    pid_ = -1;
    ++process_;
    ++statistics_.restarts;
    void_questions.swap(questions_);
    once_.clear();
    for (auto& message : outgoing_)
      if (message.type == ControlType::secret) wipe(message.payload);
  }
  record(events::Event(events::egress_fail)
             .set(events::key::cause,
                  fmt::format("the egress process ended: {}{}{}; every connection of the guest was cut",
                              to_string(status), last_words_.empty() ? "" : ": ", last_words_)));
  if (host_.withdrawn)
    for (std::uint64_t id : void_questions) host_.withdrawn(id);
}

// False when the door is closed meanwhile.
bool ProcessDoor::pause_before_restart() {
  if (steady_clock::now() - started_at_ > long_life) pause_ = first_pause;
  auto end = steady_clock::now() + pause_;
  pause_ = std::min(pause_ * 2, longest_pause);
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return false;
    }
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now());
    if (left.count() <= 0) return true;
    pollfd entry{wake_.get(), POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(left.count())) > 0) {
      std::uint64_t count;
      (void)!read(wake_.get(), &count, sizeof count);
    }
  }
}

}  // namespace anchorhold::egress
