#include "session/asker.h"

#include <fmt/format.h>

namespace anchorhold::session {

std::string_view to_string(Question::Kind kind) {
  switch (kind) {
    case Question::Kind::egress:
      return "egress";
    case Question::Kind::bulk_change:
      return "bulk_change";
  }
  return "unknown";
}

std::string_view to_string(Approval answer) {
  switch (answer) {
    case Approval::deny:
      return "deny";
    case Approval::allow_once:
      return "allow_once";
    case Approval::allow_for_session:
      return "allow_for_session";
    case Approval::allow_always:
      return "allow_always";
    case Approval::deny_always:
      return "deny_always";
  }
  return "unknown";
}

std::string Question::id() const {
  return fmt::format("{}.{}", session.value(), number);
}

std::vector<Approval> answers_to(Question::Kind kind) {
  using enum Approval;
  if (kind == Question::Kind::egress) return {deny, allow_once, allow_for_session, allow_always, deny_always};
  return {deny, allow_once, allow_for_session};
}

void Asker::settled(const Question&, const Settled&) {}

}  // namespace anchorhold::session
