// What the process tells and asks: decisions to record, questions for the person, secrets for requests.
#include <fmt/format.h>

#include "base/secret.h"
#include "door_events.h"
#include "process_door.h"

namespace anchorhold::egress {

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
                        fmt::format("the egress process could not use its policy and denies everything: {}",
                                    message.payload)));
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

}  // namespace anchorhold::egress
