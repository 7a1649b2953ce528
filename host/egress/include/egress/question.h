// What the egress process asks the host while a guest waits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "policy/destination.h"

namespace anchorhold::egress {

// May the guest reach this destination? One question per destination at a time; everything that wants to go
// there waits for its answer.
struct Question {
  std::uint64_t id = 0;
  policy::Destination destination;
  std::string reason;               // why it is asked: "no rule names example.com:443"
  std::string method{};             // of the request when it is known, else empty ("CONNECT" is not one)
  std::string path{};               // without the query
  std::uint64_t bytes_waiting = 0;  // of a request's body, when announced
};

enum class Answer {
  once,     // what waits now
  session,  // this destination until the session ends
  always,   // the same, and whoever answers keeps the rule
  never,    // denied until the session ends, and whoever answers keeps the rule
  deny,     // what waits now is denied; the next attempt asks again
};
std::string_view to_string(Answer answer);
std::optional<Answer> parse_answer(std::string_view text);

// A secret for one request.
struct SecretRequest {
  std::uint64_t id = 0;
  std::string credential;  // its name in the vault
  policy::Destination destination;
  std::string method;
  std::string path;     // without the query
  std::string scope{};  // aws_sigv4: what a key is wanted for (sigv4.h), in place of the secret; else empty
};

}  // namespace anchorhold::egress
