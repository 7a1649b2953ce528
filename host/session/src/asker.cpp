#include "session/asker.h"

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
  }
  return "unknown";
}

}  // namespace anchorhold::session
