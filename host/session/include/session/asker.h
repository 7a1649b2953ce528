// What only a person can decide while a session runs, and how a front end is asked. The one who refuses by
// default is the sealed process that asks: without an answer in time, the answer is no.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/id.h"

namespace anchorhold::session {

struct Question {
  enum class Kind {
    egress,       // a connection to where no rule says: subject is the destination, about the request
    bulk_change,  // many removals or rewrites of what was there before: subject is the grant, about a path in
                  // it
  };
  Kind kind = Kind::bulk_change;
  SessionId session;
  std::string subject;
  std::string about;  // any bytes: the guest may have chosen them
  std::string text;   // what is asked, one line
  std::chrono::milliseconds limit{0};
};
std::string_view to_string(Question::Kind kind);

enum class Approval {
  deny,
  allow_once,         // this, and as much again before the next question
  allow_for_session,  // and no question of this kind about this subject again
};
std::string_view to_string(Approval answer);

// A front end: a terminal, a service, a window. Asked by one thread at a time in each session; several
// sessions may share one.
class Asker {
 public:
  virtual ~Asker() = default;
  // Blocks until there is an answer, or a stop is requested (nobody answered in time, or the session ends):
  // then it returns deny soon. Where there is no person it returns deny at once, and says to whom it may
  // concern what to do.
  virtual Approval ask(const Question& question, std::stop_token stop) = 0;
};

}  // namespace anchorhold::session
