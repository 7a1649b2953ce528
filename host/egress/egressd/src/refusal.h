// What a guest reads when something is refused.
#pragma once

#include <string>

#include "egress/control.h"

namespace anchorhold::egress {

// An HTTP/1.1 response with the reason in `x-anchorhold-reason` and in a JSON body, after which the
// connection closes.
std::string refusal_response(unsigned status, const EventReport& report);
std::string refusal_body(unsigned status, const EventReport& report);
// The reason as a field's value: printable ASCII, one line.
std::string refusal_reason(const EventReport& report);

}  // namespace anchorhold::egress
