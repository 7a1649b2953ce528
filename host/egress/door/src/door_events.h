// What the door records, and the rules that answers become. Pure.
#pragma once

#include <string_view>

#include "egress/control.h"
#include "egress/door.h"
#include "events/event.h"

namespace anchorhold::egress {

// How the source of a rule begins that a person's answer made.
inline constexpr std::string_view answered_source = "answered ";

events::Event event_of(const EventReport& report);
events::Event event_of_question(const Question& question);
events::Event event_of_answer(const Question& question, Answer answer);
events::Event event_of_policy(const DoorPolicy& policy);

policy::EgressRule rule_of_answer(const policy::Destination& destination, Answer answer);

// Whether a rule that could decide about the destination names this credential.
bool names_credential(const DoorPolicy& policy, const policy::Destination& destination,
                      std::string_view credential);

}  // namespace anchorhold::egress
