// Takes the questions of a session's sealed processes to the person, one after another, and the answers back.
// Each answer is an event before it counts.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "base/executor.h"
#include "events/event.h"
#include "session/asker.h"

namespace anchorhold::session {

// Safe from any thread.
class QuestionDesk {
 public:
  // Without an asker every answer is no. Both outlive the desk.
  QuestionDesk(Asker* asker, events::EventSink& events) : asker_(asker), events_(events) {}
  ~QuestionDesk();
  // From now on, and for the question that is being asked, the answer is no.
  void close() { closing_.request_stop(); }

  // `answered` is called once, on the desk's thread; not at all when the desk ends before.
  void ask(Question question, std::function<void(Approval)> answered);

 private:
  Approval ask_person(const Question& question);

  Asker* const asker_;
  events::EventSink& events_;
  std::stop_source closing_;
  std::unique_ptr<SerialExecutor> timer_ = std::make_unique<SerialExecutor>("question time");
  std::unique_ptr<SerialExecutor> desk_ = std::make_unique<SerialExecutor>("questions");
};

}  // namespace anchorhold::session
