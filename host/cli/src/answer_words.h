// Questions and their answers as the command line says them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "console.h"
#include "policy/egress_policy.h"
#include "session/asker.h"

namespace anchorhold::cli {

// "once", "session", "always", "never", "deny".
std::string_view word_of(session::Approval answer);
std::optional<session::Approval> answer_of_word(std::string_view word);
// "once|session|deny": all that can be answered.
std::string words_for(session::Question::Kind kind);

Json to_json(const session::Question& question, std::chrono::milliseconds left);
// With what it wants just now, on one line.
std::string described(const session::Question& question);

// "allow example.com:443,80", and what it demands of each request.
std::string described(const policy::EgressRule& rule);
Json to_json(const policy::EgressRule& rule);

}  // namespace anchorhold::cli
