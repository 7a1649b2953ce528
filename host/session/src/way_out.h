// A session's way out: the door of its guests, one after another, the person who is asked at it, and the
// person's rules as they are in their files now.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/id.h"
#include "egress/fetch.h"
#include "question_desk.h"
#include "rules_watch.h"
#include "session/egress.h"
#include "session/guest_client.h"

namespace anchorhold::session {

struct WayOutParts {
  std::shared_ptr<QuestionDesk> questions;
  bool asks = false;  // whether anybody may be asked
  // What the person should hear; from any thread.
  std::function<void(const std::string&)> notice{};
  // All that was answered for the rest of the session, after each such answer; from any thread.
  std::function<void(const std::vector<policy::EgressRule>&)> answered{};
};

// Safe from any thread.
class WayOut {
 public:
  // The events outlive this.
  static Result<std::unique_ptr<WayOut>> start(EgressSpec spec, WayOutParts parts, events::EventSink& events);
  // Finishes the desk: nobody is asked any more.
  ~WayOut();

  // What the guest holds in place of every secret.
  const std::string& token() const { return token_; }
  // The token in the variables in which programs look for the session's credentials.
  std::map<std::string, std::string> variables() const;
  // What is in force now, with the session's answers.
  egress::DoorPolicy policy() const { return door_->policy(); }
  // One page of the web through the same door. From any thread.
  Result<egress::FetchedPage> fetch(const std::string& url, std::stop_token stop);
  // A connection of the guest; closed when it cannot be served.
  void adopt(UniqueFd stream);
  // The guest offers its programs the way out, and trusts the session's authority, also a later one. Until
  // end_guest(), which waits for a call that is under way.
  Status serve(GuestClient& guest);
  void end_guest();

 private:
  WayOut(EgressSpec spec, WayOutParts parts, events::EventSink& events)
      : spec_(std::move(spec)), parts_(std::move(parts)), events_(events) {}
  Status start_door();
  Status start_watch();
  void ask(const egress::Question& question, std::function<void(egress::Answer)> answer);
  void withdrawn(std::uint64_t question);
  void answered(const egress::Question& question, Approval given,
                const std::function<void(egress::Answer)>& answer);
  void keep(const egress::Question& question, egress::Answer answer);
  // Of the watch, one after another.
  Status check(const policy::PersonRules& rules) const;
  void apply(const policy::PersonRules& rules);
  void deny_all(const Error& fault);
  void replace(egress::DoorPolicy policy);
  void grant_credentials(egress::DoorPolicy& policy);
  egress::TrustSpec trust_of(const policy::PersonRules& rules) const;
  void tell_guest();
  void tell_person(const std::string& text) const;

  const EgressSpec spec_;
  const WayOutParts parts_;
  events::EventSink& events_;
  const std::string token_ = random_hex(32);

  std::atomic<std::chrono::milliseconds> ask_timeout_{spec_.policy.ask_timeout};

  // The watch's own, once it runs.
  std::string in_force_;  // what the rules say, to see whether they say something else
  bool broken_ = false;
  std::vector<std::string> missing_;  // what the person was told last of credentials that are not there

  std::mutex mutex_;  // guards the next
  GuestClient* guest_ = nullptr;
  std::string also_trusted_;                      // PEM
  std::mutex asked_mutex_;                        // guards the next
  std::map<std::uint64_t, std::uint64_t> asked_;  // the desk's number of each question of the door
  SerialExecutor restarts_{"egress"};
  SerialExecutor vault_{"vault"};
  // Last, so that they are gone before anything that they turn to.
  std::unique_ptr<egress::Door> door_;
  std::unique_ptr<RulesWatch> watch_;
};

}  // namespace anchorhold::session
