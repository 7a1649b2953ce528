// What the host and the sealed egress process say to each other on their SOCK_SEQPACKET socket: one message a
// packet, at most one descriptor with it. Both sides come from the same build; the host still reads what the
// process says as hostile bytes, since a process that was taken over can say anything here: nothing follows
// from it but a line in a log, a question to a person, or a secret for a destination whose rule names it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "egress/provenance.h"
#include "egress/question.h"
#include "egress/upstream.h"
#include "policy/egress_policy.h"

namespace anchorhold::egress {

// The numbers at which the process finds its descriptors.
namespace egressd_fd {
inline constexpr int control = 3;
}

enum class ControlType : std::uint16_t {
  // host → process
  trust = 1,  // with a descriptor of a PEM text
  configure,  // id: its generation; with a descriptor of a Configuration
  stream,     // with a connection of the guest
  answer,     // id of the question; an Answer
  secret,     // id of the request; code 0: the secret, 1: why there is none
  recorded,   // id of the event; code 0: recorded, 1: it could not be
  // process → host
  sealed = 64,  // code: Landlock's version; the CA's certificate as PEM
  configured,  // id: the generation that is in force now; code 1: that denies everything, for the cause given
  event,       // id, when it waits for `recorded`; code: an EventKind; an EventReport
  ask,         // id; a Question
  withdraw,    // id of the question
  want_secret,  // id; a SecretRequest
  fatal,        // why the process ends
};

struct ControlMessage {
  ControlType type{};
  std::uint32_t code = 0;
  std::uint64_t id = 0;
  std::string payload{};
  UniqueFd descriptor{};
};

inline constexpr std::size_t max_control_payload = 60 * 1024;
inline constexpr std::size_t control_header_bytes = 20;

// The bytes of a message without its descriptor.
std::string encode_control(const ControlMessage& message);
Result<ControlMessage> parse_control(std::string_view bytes);
// Never blocks: resource_exhausted when the other side does not read, unavailable when it is gone. What was
// sent as a secret is wiped from this function's memory.
Status send_control(int socket, const ControlMessage& message);
// One message; nothing when there is none yet. unavailable: the other side closed.
Result<std::optional<ControlMessage>> receive_control(int socket);

// A text that is too long for a message, in memory that only the two have. Read from its beginning.
inline constexpr std::size_t max_passed_text = 32u << 20;
Result<UniqueFd> text_descriptor(std::string_view text);
Result<std::string> read_text_descriptor(int fd);

enum class EventKind : std::uint32_t {
  allow = 1,
  deny,
  credential_use,
  credential_reject,
};

// What was decided. Empty: does not apply or is not known.
struct EventReport {
  EventKind kind = EventKind::deny;
  std::string host{};  // canonical when there is one, else as the guest wrote it
  std::uint16_t port = 0;
  std::string cause{};  // one sentence
  std::string rule{};   // its source
  std::string origin{};
  std::string address{};  // that was dialled
  std::string method{};
  std::string path{};
  std::string credential{};
  std::string git_repository{};  // of a request of Git
  std::string git_operation{};   // "fetch", "push", "lfs"
  std::string git_refs{};        // of a push: what it does to which
  bool violation = false;        // a boundary: what no well-behaved guest does
  bool cut = false;              // an open connection was ended
};

// Everything the process decides by.
struct Configuration {
  policy::EgressPolicy rules{};
  policy::Person person = policy::Person::absent;
  std::chrono::milliseconds ask_timeout = std::chrono::seconds(60);
  std::map<std::string, CredentialForm> credentials{};
  std::string session_token{};
  ResolverSpec resolver{};
  UpstreamProxies proxies{};
  ConnectionLimits limits{};
};

std::string encode_event(const EventReport& report);
Result<EventReport> parse_event(std::uint32_t kind, std::string_view payload);
std::string encode_question(const Question& question);
Result<Question> parse_question(std::uint64_t id, std::string_view payload);
std::string encode_secret_request(const SecretRequest& request);
Result<SecretRequest> parse_secret_request(std::uint64_t id, std::string_view payload);
// The rules alone, as JSON: lists "managed", "user", "session", "answers", "kept" of rules (with "source"),
// and "managed_floor", "unnamed", "broken".
std::string encode_rules(const policy::EgressPolicy& rules);
Result<policy::EgressPolicy> parse_rules(std::string_view text);
std::string encode_configuration(const Configuration& configuration);
Result<Configuration> parse_configuration_message(std::string_view text);

}  // namespace anchorhold::egress
