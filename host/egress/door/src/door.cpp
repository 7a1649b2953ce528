#include "egress/door.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <deque>
#include <fmt/format.h>
#include <future>
#include <mutex>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/paths.h"
#include "base/process.h"
#include "base/secret.h"
#include "door_events.h"
#include "egress/control.h"

namespace anchorhold::egress {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds start_limit(20);
constexpr std::chrono::seconds end_limit(5);
constexpr std::size_t max_waiting_streams = 256;
// Between two starts of a process that keeps dying.
constexpr std::chrono::milliseconds first_pause(50), longest_pause(30'000);
constexpr std::chrono::seconds long_life(60);

class ProcessDoor final : public Door, public std::enable_shared_from_this<ProcessDoor> {
 public:
  ProcessDoor(DoorSpec spec, DoorHost host, std::string trust)
      : spec_(std::move(spec)), host_(std::move(host)), policy_(spec_.policy), trust_(std::move(trust)) {}

  Status begin();
  void end();

  Status adopt(UniqueFd stream) override;
  Status replace_policy(DoorPolicy policy) override;
  Status replace_trust(const TrustSpec& trust) override;
  Status replace_upstream(ResolverSpec resolver, UpstreamProxies proxies) override;
  DoorPolicy policy() const override;
  std::string ca_certificate_pem() const override;
  pid_t pid() const override;
  DoorStatistics statistics() const override;

 private:
  void run();
  // On the door's thread.
  Status start_process();
  Result<std::string> await_sealed(int control);
  void serve_process();
  bool flush();
  bool take_messages();
  void take(ControlMessage message);
  void take_event(const ControlMessage& message);
  void take_question(const ControlMessage& message);
  void take_secret_request(const ControlMessage& message);
  void process_ended();
  bool pause_before_restart();

  // From any thread.
  void answer(std::uint64_t process, Question question, Answer answer);
  void give(std::uint64_t process, std::uint64_t id, Result<std::string> secret);
  void send(ControlMessage message);  // with the mutex held
  Status send_configuration();        // with the mutex held
  void wake();
  bool record(events::Event event);

  DoorSpec spec_;
  DoorHost host_;
  UniqueFd wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::thread thread_;
  std::promise<Status> started_;

  // The thread's own.
  std::optional<Child> child_;
  UniqueFd control_;
  steady_clock::time_point started_at_{};
  std::chrono::milliseconds pause_ = first_pause;
  std::string last_words_;

  mutable std::mutex mutex_;  // guards what follows
  DoorPolicy policy_;
  std::string trust_;
  std::deque<ControlMessage> outgoing_;
  std::set<std::uint64_t> questions_;   // of the process that runs
  std::set<policy::Destination> once_;  // what was allowed for once in it
  std::string ca_;
  pid_t pid_ = -1;
  std::uint64_t process_ = 0;  // counts them; what was asked by an earlier one is void
  std::uint64_t generation_ = 0;
  bool stopping_ = false;
  DoorStatistics statistics_;
};

void ProcessDoor::wake() {
  std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

bool ProcessDoor::record(events::Event event) {
  return host_.sink && host_.sink->record(std::move(event)).has_value();
}

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

Status ProcessDoor::send_configuration() {
  Configuration configuration;
  configuration.rules = policy_.rules;
  configuration.person = host_.ask ? policy_.person : policy::Person::absent;
  configuration.ask_timeout = policy_.ask_timeout;
  configuration.credentials = policy_.credentials;
  configuration.session_token = spec_.session_token;
  configuration.resolver = spec_.resolver;
  configuration.proxies = spec_.proxies;
  configuration.limits = spec_.limits;
  std::string text = encode_configuration(configuration);
  ControlMessage message{.type = ControlType::configure, .id = ++generation_};
  message.descriptor = ANCHORHOLD_TRY(text_descriptor(text));
  wipe(text);  // it holds the proxy's password
  outgoing_.push_back(std::move(message));
  return {};
}

void ProcessDoor::send(ControlMessage message) {
  outgoing_.push_back(std::move(message));
  wake();
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

void ProcessDoor::take(ControlMessage message) {
  switch (message.type) {
    case ControlType::event:
      return take_event(message);
    case ControlType::ask:
      return take_question(message);
    case ControlType::want_secret:
      return take_secret_request(message);
    case ControlType::withdraw: {
      bool open;
      {
        std::lock_guard lock(mutex_);
        open = questions_.erase(message.id) > 0;
      }
      if (open && host_.withdrawn) host_.withdrawn(message.id);
      return;
    }
    case ControlType::configured:
      if (message.code != 0)
        record(events::Event(events::policy_reject)
                   .set(events::key::cause,
                        "the egress process could not read its policy and denies everything"));
      return;
    case ControlType::fatal:
      last_words_ = message.payload;
      return;
    default:
      return;
  }
}

void ProcessDoor::take_event(const ControlMessage& message) {
  auto report = parse_event(message.code, message.payload);
  bool recorded = report && record(event_of(*report));
  std::lock_guard lock(mutex_);
  send({.type = ControlType::recorded, .code = recorded ? 0u : 1u, .id = message.id});
}

void ProcessDoor::take_question(const ControlMessage& message) {
  auto question = parse_question(message.id, message.payload);
  std::uint64_t process;
  {
    std::lock_guard lock(mutex_);
    process = process_;
  }
  if (!question || !host_.ask || !record(event_of_question(*question)))
    return answer(process, question ? *question : Question{.id = message.id, .destination = {}, .reason = {}},
                  Answer::deny);
  {
    std::lock_guard lock(mutex_);
    questions_.insert(message.id);
  }
  std::weak_ptr<ProcessDoor> self = weak_from_this();
  host_.ask(*question, [self, process, asked = *question](Answer given) {
    if (auto door = self.lock()) door->answer(process, asked, given);
  });
}

void ProcessDoor::answer(std::uint64_t process, Question question, Answer given) {
  {
    std::unique_lock lock(mutex_);
    if (process != process_) return;
    bool open = questions_.erase(question.id) > 0;
    if (!open && given != Answer::deny) {
      // Too late, or kept as a rule that has settled the question already.
      const bool kept = given == Answer::always || given == Answer::never;
      lock.unlock();
      if (kept) record(event_of_answer(question, given));
      return;
    }
  }
  if (!record(event_of_answer(question, given))) given = Answer::deny;
  std::lock_guard lock(mutex_);
  if (given == Answer::once) once_.insert(question.destination);
  if (given == Answer::session || given == Answer::always || given == Answer::never) {
    // Unless whoever answered has kept it as a rule that is in force already.
    const auto wanted = given == Answer::never ? policy::EgressAction::deny : policy::EgressAction::allow;
    auto decision = policy::decide(policy_.rules, question.destination, policy::Person::present);
    if (decision.action != wanted) {
      policy_.rules.answers.push_back(rule_of_answer(question.destination, given, decision.rule));
      if (!send_configuration()) given = Answer::deny;
    }
  }
  ControlMessage message{.type = ControlType::answer, .id = question.id};
  message.payload = to_string(given);
  send(std::move(message));
}

void ProcessDoor::take_secret_request(const ControlMessage& message) {
  std::uint64_t process;
  bool named = false;
  auto request = parse_secret_request(message.id, message.payload);
  {
    std::lock_guard lock(mutex_);
    process = process_;
    // The process decides; what it may ask for at all is held against the policy here.
    if (request)
      named = names_credential(policy_, request->destination, request->credential,
                               once_.contains(request->destination));
  }
  if (!request || !named || !host_.secret)
    return give(process, message.id,
                fail(ErrorCode::permission_denied, "no rule gives it to this destination"));
  std::weak_ptr<ProcessDoor> self = weak_from_this();
  host_.secret(*request, [self, process, id = message.id](Result<std::string> secret) {
    if (auto door = self.lock()) door->give(process, id, std::move(secret));
  });
}

void ProcessDoor::give(std::uint64_t process, std::uint64_t id, Result<std::string> secret) {
  ControlMessage message{.type = ControlType::secret, .code = secret ? 0u : 1u, .id = id};
  message.payload = secret ? *secret : secret.error().message;
  if (secret) wipe(*secret);
  std::lock_guard lock(mutex_);
  if (process == process_)
    send(std::move(message));
  else
    wipe(message.payload);
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

Status ProcessDoor::adopt(UniqueFd stream) {
  std::lock_guard lock(mutex_);
  auto waiting = static_cast<std::size_t>(
      std::count_if(outgoing_.begin(), outgoing_.end(),
                    [](const ControlMessage& message) { return message.type == ControlType::stream; }));
  if (stopping_ || waiting >= max_waiting_streams) {
    ++statistics_.dropped;
    return fail(ErrorCode::resource_exhausted, "too many connections wait for the egress process");
  }
  ++statistics_.adopted;
  ControlMessage message{.type = ControlType::stream};
  message.descriptor = std::move(stream);
  send(std::move(message));
  return {};
}

Status ProcessDoor::replace_policy(DoorPolicy policy) {
  bool recorded = record(event_of_policy(policy));
  std::lock_guard lock(mutex_);
  // What was answered for the session stays, unless the new policy says it itself.
  auto answers = std::move(policy_.rules.answers);
  policy_ = recorded ? std::move(policy) : DoorPolicy{};
  for (auto& rule : answers) {
    auto same = [&](const policy::EgressRule& other) {
      return other.host == rule.host && other.ports == rule.ports && other.action == rule.action;
    };
    auto& kept = policy_.rules.answers;
    if (recorded && std::none_of(kept.begin(), kept.end(), same)) kept.push_back(std::move(rule));
  }
  auto sent = send_configuration();
  if (!sent) {
    policy_ = {};
    (void)send_configuration();
  }
  wake();
  if (!recorded)
    return fail(ErrorCode::unavailable, "the new policy could not be recorded: everything is denied");
  return sent;
}

Status ProcessDoor::replace_trust(const TrustSpec& trust) {
  std::string pem = ANCHORHOLD_TRY(trust.pem());
  std::lock_guard lock(mutex_);
  if (pem == trust_) return {};
  ControlMessage message{.type = ControlType::trust};
  message.descriptor = ANCHORHOLD_TRY(text_descriptor(pem));
  trust_ = std::move(pem);
  send(std::move(message));
  return {};
}

Status ProcessDoor::replace_upstream(ResolverSpec resolver, UpstreamProxies proxies) {
  std::lock_guard lock(mutex_);
  spec_.resolver = std::move(resolver);
  spec_.proxies = std::move(proxies);
  auto sent = send_configuration();
  wake();
  return sent;
}

DoorPolicy ProcessDoor::policy() const {
  std::lock_guard lock(mutex_);
  return policy_;
}

std::string ProcessDoor::ca_certificate_pem() const {
  std::lock_guard lock(mutex_);
  return ca_;
}

pid_t ProcessDoor::pid() const {
  std::lock_guard lock(mutex_);
  return pid_;
}

DoorStatistics ProcessDoor::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

// What callers hold: callbacks that come late find the door gone, and not a part of it.
class DoorHandle final : public Door {
 public:
  explicit DoorHandle(std::shared_ptr<ProcessDoor> door) : door_(std::move(door)) {}
  ~DoorHandle() override { door_->end(); }
  Status adopt(UniqueFd stream) override { return door_->adopt(std::move(stream)); }
  Status replace_policy(DoorPolicy policy) override { return door_->replace_policy(std::move(policy)); }
  Status replace_trust(const TrustSpec& trust) override { return door_->replace_trust(trust); }
  Status replace_upstream(ResolverSpec resolver, UpstreamProxies proxies) override {
    return door_->replace_upstream(std::move(resolver), std::move(proxies));
  }
  DoorPolicy policy() const override { return door_->policy(); }
  std::string ca_certificate_pem() const override { return door_->ca_certificate_pem(); }
  pid_t pid() const override { return door_->pid(); }
  DoorStatistics statistics() const override { return door_->statistics(); }

 private:
  std::shared_ptr<ProcessDoor> door_;
};

}  // namespace

Result<std::unique_ptr<Door>> Door::start(DoorSpec spec, DoorHost host) {
  if (spec.session_token.size() < 16)
    return fail(ErrorCode::invalid_argument, "a session's token has at least 16 characters");
  if (!host.sink) return fail(ErrorCode::invalid_argument, "the egress process needs somewhere to record to");
  std::string trust = ANCHORHOLD_TRY(spec.trust.pem());
  ANCHORHOLD_CHECK(host.sink->record(event_of_policy(spec.policy)));
  auto door = std::make_shared<ProcessDoor>(std::move(spec), std::move(host), std::move(trust));
  auto handle = std::make_unique<DoorHandle>(door);
  ANCHORHOLD_CHECK(door->begin());
  return handle;
}

}  // namespace anchorhold::egress
