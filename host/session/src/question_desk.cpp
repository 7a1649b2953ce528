#include "question_desk.h"

#include "base/log.h"

namespace anchorhold::session {

QuestionDesk::~QuestionDesk() {
  close();
  desk_.reset();
  timer_.reset();
}

void QuestionDesk::ask(Question question, std::function<void(Approval)> answered) {
  desk_->post([this, question = std::move(question), answered = std::move(answered)] {
    Approval answer = ask_person(question);
    events::Event event(events::approval);
    event.set("approval.kind", to_string(question.kind))
        .set("approval.subject", question.subject)
        .set("approval.answer", to_string(answer))
        .set(events::key::cause, question.text)
        .set_content(events::ContentCategory::paths, "approval.about", question.about);
    if (answer == Approval::deny) event.set_severity(events::Severity::warn);
    if (auto status = events_.record(std::move(event)); !status) {
      log_error(status.error().message);
      answer = Approval::deny;
    }
    answered(answer);
  });
}

Approval QuestionDesk::ask_person(const Question& question) {
  if (!asker_ || closing_.stop_requested()) return Approval::deny;
  auto stop = std::make_shared<std::stop_source>();
  timer_->post_after(question.limit, [stop] { stop->request_stop(); });
  std::stop_callback on_close(closing_.get_token(), [&] { stop->request_stop(); });
  return asker_->ask(question, stop->get_token());
}

}  // namespace anchorhold::session
