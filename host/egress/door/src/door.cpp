#include "egress/door.h"

#include <algorithm>
#include <unistd.h>

#include "base/secret.h"
#include "door_events.h"
#include "process_door.h"

namespace anchorhold::egress {

namespace {

// Fewer than the descriptors that a process usually may have.
constexpr std::size_t max_waiting_streams = 512;

}  // namespace

void ProcessDoor::wake() {
  std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

bool ProcessDoor::record(events::Event event) {
  return host_.sink && host_.sink->record(std::move(event)).has_value();
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

namespace {

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
