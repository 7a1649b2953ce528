// A session's way out: the door of its guests, one after another, and the person who is asked at it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/executor.h"
#include "base/id.h"
#include "question_desk.h"
#include "session/egress.h"
#include "session/guest_client.h"

namespace anchorhold::session {

// Safe from any thread.
class WayOut {
 public:
  // The asker may be none: nobody is asked then. It and the events outlive this.
  static Result<std::unique_ptr<WayOut>> start(EgressSpec spec, SessionId session, Asker* asker,
                                               events::EventSink& events);
  ~WayOut();

  // What the guest holds in place of every secret.
  const std::string& token() const { return token_; }
  // A connection of the guest; closed when it cannot be served.
  void adopt(UniqueFd stream);
  // The guest offers its programs the way out, and trusts the session's authority, also a later one. Until
  // end_guest(), which waits for a call that is under way.
  Status serve(GuestClient& guest);
  void end_guest();

 private:
  WayOut(SessionId session, Asker* asker, events::EventSink& events)
      : session_(std::move(session)), desk_(asker, events) {}
  void ask(const egress::Question& question, std::chrono::milliseconds limit,
           std::function<void(egress::Answer)> answer);
  void door_restarted(const std::string& authority_pem);

  const SessionId session_;
  const std::string token_ = random_hex(32);
  std::mutex mutex_;  // guards the next
  GuestClient* guest_ = nullptr;
  SerialExecutor restarts_{"egress"};
  QuestionDesk desk_;
  // Last, so that it is gone before anything that it turns to.
  std::unique_ptr<egress::Door> door_;
};

}  // namespace anchorhold::session
