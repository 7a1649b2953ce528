// What only a person can decide while a session runs, and how a front end is asked. The one who refuses by
// default is the sealed process that asks: without an answer in time, the answer is no.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"

namespace anchorhold::session {

enum class Approval {
  deny,
  allow_once,         // this; of a bulk change: as much again before the next question
  allow_for_session,  // and no question of this kind about this subject again
  allow_always,       // nor in later sessions
  deny_always,        // denied, now and in later sessions, without a question
};
std::string_view to_string(Approval answer);

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
  std::uint64_t bytes_waiting = 0;  // of a request's body, when announced
  // Set when it is put: its number in the session, and the commands that run in the guest then.
  std::uint64_t number = 0;
  std::string activity{};

  // "3f2a1b.2": names it among all questions of a person.
  std::string id() const;
};
std::string_view to_string(Question::Kind kind);
// What can be answered to it.
std::vector<Approval> answers_to(Question::Kind kind);

// How a question came to its end.
struct Settled {
  Approval answer = Approval::deny;
  std::string how;         // "on the terminal", "by another program", "nobody answered in time"
  bool withdrawn = false;  // nobody needs an answer any more: the rules have it, or who asked is gone
};

// A front end: a terminal, a service, a window. Asked by one thread at a time in each session; several
// sessions may share one.
class Asker {
 public:
  virtual ~Asker() = default;
  // Blocks until there is an answer, or a stop is requested (it was answered elsewhere or not in time, it is
  // no longer of interest, the session ends): then it returns nothing soon. Where there is no person and none
  // is waited for it returns deny at once, and says to whom it may concern what to do.
  virtual std::optional<Settled> ask(const Question& question, std::stop_token stop) = 0;
  // What became of a question that was put here, whoever answered it. On the thread that asked.
  virtual void settled(const Question& question, const Settled& end);
};

}  // namespace anchorhold::session
