// What the sealed processes of a grant tell the host: that they are ready, what they refused, what is wrong,
// and what a person has to decide. One message on a SOCK_SEQPACKET socket is one report; the host's answer to
// a question comes back on the same socket. Sending never blocks the process that serves a guest:
// what does not fit is counted and the count is told with the next one that does. Whoever receives them
// treats them as hostile bytes: a process that was taken over can say anything here, and nothing but a line
// in a log follows from it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::mounts {

enum class ReportKind : std::uint16_t {
  ready = 1,      // sealed, and serving from now on
  refused = 2,    // policy: the mode, a hidden name, the ledger's quota
  violation = 3,  // something no well-behaved guest does: a malformed message, an escape, a device node
  warning = 4,    // served, but a person should know (an escaping symlink, what the file system cannot do)
  fatal = 5,      // the process ends now; reason says why
  question = 6,   // a change waits until a person has answered, or until nobody has for too long
};
std::string_view to_string(ReportKind kind);

struct Report {
  ReportKind kind = ReportKind::warning;
  int error = 0;               // errno told to the client, 0: none
  std::uint32_t lost = 0;      // reports before this one that could not be sent
  std::uint64_t question = 0;  // its number, at least 1; 0: this is none
  std::string operation{};     // "unlink", "FUSE_MKNOD", "vhost-user"
  std::string path{};          // relative to the grant where there is one; any bytes
  std::string reason{};        // for a person
};

inline constexpr std::size_t max_report_bytes = 8192;
// Texts that are too long are cut.
std::string encode_report(const Report& report);
Result<Report> parse_report(std::span<const std::byte> message);

// What the host answers. Of number 0: nobody will answer any question any more.
enum class Verdict : std::uint32_t {
  deny = 0,
  allow_once = 1,         // this, and as much again before the next question
  allow_for_session = 2,  // this, and no question of its kind again
};
struct Answered {
  std::uint64_t question = 0;
  Verdict verdict = Verdict::deny;
};
inline constexpr std::size_t answer_bytes = 16;
std::string encode_answer(const Answered& answer);
Result<Answered> parse_answer(std::span<const std::byte> message);

// Safe from any thread.
class Reporter {
 public:
  explicit Reporter(UniqueFd socket) : socket_(std::move(socket)) {}
  // False: it could not be sent, and counts as lost.
  bool send(Report report);
  // Waits for the answer to the question; deny when none has come in time or the host is gone. One thread at
  // a time.
  Verdict wait_for_answer(std::uint64_t question, std::chrono::milliseconds limit);
  int descriptor() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  std::atomic<std::uint32_t> lost_{0};
};

// Waits for one; nothing when the process closed its end.
Result<std::optional<Report>> receive_report(int socket);

}  // namespace anchorhold::mounts
