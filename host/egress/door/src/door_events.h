// What the door records, and the rules that answers become. Pure.
#pragma once

#include <string_view>

#include "egress/control.h"
#include "egress/door.h"
#include "events/event.h"

namespace anchorhold::egress {

events::Event event_of(const EventReport& report);
events::Event event_of_question(const Question& question);
events::Event event_of_answer(const Question& question, Answer answer);
events::Event event_of_policy(const DoorPolicy& policy);

// Whether the rule that decides about the destination names this credential. `once`: a person has allowed
// what the policy asks about.
bool names_credential(const DoorPolicy& policy, const policy::Destination& destination,
                      std::string_view credential, bool once);

}  // namespace anchorhold::egress
