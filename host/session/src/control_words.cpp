#include "control_words.h"

namespace anchorhold::session {
namespace {

namespace wire = ::anchorhold::host::v1;

constexpr std::size_t max_text = 2048;

std::string cut(const std::string& text) {
  return text.substr(0, max_text);
}

}  // namespace

wire::AnswerWord to_wire(Approval answer) {
  switch (answer) {
    case Approval::deny:
      return wire::ANSWER_WORD_DENY;
    case Approval::allow_once:
      return wire::ANSWER_WORD_ONCE;
    case Approval::allow_for_session:
      return wire::ANSWER_WORD_SESSION;
    case Approval::allow_always:
      return wire::ANSWER_WORD_ALWAYS;
    case Approval::deny_always:
      return wire::ANSWER_WORD_NEVER;
  }
  return wire::ANSWER_WORD_UNSPECIFIED;
}

std::optional<Approval> approval_from(wire::AnswerWord word) {
  using enum Approval;
  for (auto answer : {deny, allow_once, allow_for_session, allow_always, deny_always})
    if (to_wire(answer) == word) return answer;
  return std::nullopt;
}

void to_wire(const Questions::Pending& pending, wire::Question& into) {
  const auto& question = pending.question;
  into.set_number(question.number);
  into.set_kind(question.kind == Question::Kind::egress ? wire::QUESTION_KIND_EGRESS
                                                        : wire::QUESTION_KIND_BULK_CHANGE);
  into.set_subject(cut(question.subject));
  into.set_about(cut(question.about));
  into.set_text(cut(question.text));
  into.set_activity(cut(question.activity));
  into.set_bytes_waiting(question.bytes_waiting);
  into.set_left_ms(static_cast<std::uint64_t>(pending.left.count()));
  into.set_limit_ms(static_cast<std::uint64_t>(question.limit.count()));
  for (auto answer : answers_to(question.kind)) into.add_answers(to_wire(answer));
}

std::optional<Questions::Pending> from_wire(const wire::Question& question, const SessionId& session) {
  if (question.kind() != wire::QUESTION_KIND_EGRESS && question.kind() != wire::QUESTION_KIND_BULK_CHANGE)
    return std::nullopt;
  Questions::Pending pending;
  auto& into = pending.question;
  into.kind =
      question.kind() == wire::QUESTION_KIND_EGRESS ? Question::Kind::egress : Question::Kind::bulk_change;
  into.session = session;
  into.number = question.number();
  into.subject = question.subject();
  into.about = question.about();
  into.text = question.text();
  into.activity = question.activity();
  into.bytes_waiting = question.bytes_waiting();
  into.limit = std::chrono::milliseconds(question.limit_ms());
  pending.left = std::chrono::milliseconds(question.left_ms());
  return pending;
}

}  // namespace anchorhold::session
