// What a guest reads when something is refused.
#pragma once

#include <string>
#include <vector>

#include "egress/control.h"
#include "egress/http_head.h"

namespace anchorhold::egress {

// How it is said to whoever asked.
struct RefusalForm {
  bool plain_text = false;   // instead of JSON: Git shows such a body to the person, line by line
  bool challenge = false;    // with a 401: asks for HTTP's Basic
  std::string git_report{};  // the whole body of a 200: what a server says that takes nothing of a push
};

// One that the guest can read.
struct Refusal {
  unsigned status = 403;
  EventReport report;
  RefusalForm form{};
};

// Everything of a response but its status, its length and how it is framed.
struct RefusalResponse {
  unsigned status = 403;
  std::vector<Field> fields;  // lower-case names
  std::string body;
};
RefusalResponse refusal_message(unsigned status, const EventReport& report, const RefusalForm& form);

// An HTTP/1.1 response with the reason in `x-anchorhold-reason` and in a JSON body, after which the
// connection closes.
std::string refusal_response(unsigned status, const EventReport& report, const RefusalForm& form);
// The reason as a field's value: printable ASCII, one line.
std::string refusal_reason(const EventReport& report);

}  // namespace anchorhold::egress
