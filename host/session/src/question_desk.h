// Takes the questions of a session's sealed processes to the person and the answers back. A front end is
// shown one after another; others may answer any of them meanwhile. Each answer is an event before it counts.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/executor.h"
#include "events/event.h"
#include "session/questions.h"

namespace anchorhold::session {

// Safe from any thread.
class QuestionDesk final : public Questions {
 public:
  using Answered = std::function<void(Approval)>;

  // Without an asker every answer is no. It and the events outlive the desk. `activity` says what runs in the
  // guest.
  QuestionDesk(SessionId session, Asker* asker, events::EventSink& events,
               std::function<std::string()> activity = {});
  ~QuestionDesk() override;

  // `answered` is called once, on a thread of the desk's; not at all when the desk has finished before. Gives
  // back the question's number.
  std::uint64_t ask(Question question, Answered answered);
  const SessionId& session() const { return session_; }
  // Nobody needs the answer any more.
  void withdraw(std::uint64_t number);
  // From now on, and for every question that waits, the answer is no.
  void close();
  // The same, and nothing is called any more when this returns. Not from a thread of the desk's.
  void finish();

  std::vector<Pending> pending() const override;
  Result<Approval> answer(std::uint64_t number, Approval answer, std::string_view how) override;
  std::uint64_t add_listener(std::function<void()> changed) override;
  void remove_listener(std::uint64_t listener) override;

 private:
  struct Entry {
    Question question;
    Answered answered;
    std::chrono::steady_clock::time_point deadline;
    std::stop_source stop;
    bool shown = false;
  };
  struct Ended {
    Settled how;
    bool counts = false;  // recorded, and passed on
  };
  void show_all(std::stop_token stop);
  bool settle(std::uint64_t number, Settled how);
  void conclude(std::uint64_t number, Question question, Answered answered, Settled how);
  Ended* ended(std::uint64_t number);  // with the mutex held
  void tell_listeners();

  const SessionId session_;
  Asker* const asker_;
  events::EventSink& events_;
  const std::function<std::string()> activity_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::uint64_t, std::shared_ptr<Entry>> waiting_;
  std::deque<std::pair<std::uint64_t, Ended>> ended_;  // the latest ones
  std::uint64_t next_ = 1;
  bool closed_ = false;
  bool finished_ = false;

  std::mutex listeners_mutex_;
  std::map<std::uint64_t, std::function<void()>> listeners_;
  std::uint64_t next_listener_ = 1;

  std::unique_ptr<SerialExecutor> timer_ = std::make_unique<SerialExecutor>("question time");
  std::unique_ptr<SerialExecutor> answers_ = std::make_unique<SerialExecutor>("answers");
  std::jthread shower_;
};

}  // namespace anchorhold::session
