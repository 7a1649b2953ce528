// The person's sessions, past and present: one SQLite file that all of that person's processes share. A
// session is one `run` or one task (which keeps its session over every resumption); its guests come and go.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/id.h"
#include "policy/egress_policy.h"
#include "session/process_identity.h"

namespace anchorhold::session {

enum class SessionKind { run, task };
std::string_view to_string(SessionKind kind);

enum class SessionState {
  running,
  ended,        // `end` says how
  interrupted,  // its process was killed; a task can be resumed
};
std::string_view to_string(SessionState state);

struct SessionRecord {
  SessionId id;
  SessionKind kind = SessionKind::run;
  SessionState state = SessionState::running;
  std::string title;  // the command or the wish, shortened, on one line
  std::string image;
  std::vector<std::string> grants;                        // "rw /home/a/report → /mnt/report"
  std::vector<policy::EgressRule> network;                // the command line's --allow and --deny
  std::vector<policy::EgressRule> answers;                // what was answered for all of the session
  std::optional<std::vector<std::string>> credentials{};  // the command line's --credential
  WallTime created{};
  WallTime changed{};
  ProcessIdentity owner;  // the process that runs it, or ran it last
  std::string end;        // one line, when ended
};

// Owned by one thread.
class SessionStore {
 public:
  // <state directory>/sessions.db, made when it is not there.
  static Result<SessionStore> open_default();
  static Result<SessionStore> open(const std::filesystem::path& file);
  SessionStore(SessionStore&&) noexcept;
  SessionStore& operator=(SessionStore&&) noexcept;
  ~SessionStore();

  // Owner, state and times are set here: this process runs it from now on. For an id that is known (a task
  // that is resumed) the record is taken over; unavailable when another living process runs it.
  Status begin(SessionRecord record, const Clock& clock);
  // What it is granted now.
  Status set_grants(const SessionId& id, const std::vector<std::string>& grants, const Clock& clock);
  // What was answered for it, all of it.
  Status set_answers(const SessionId& id, const std::vector<policy::EgressRule>& answers, const Clock& clock);
  Status end(const SessionId& id, std::string_view how, const Clock& clock);

  // A record says running only while its process lives.
  Result<std::vector<SessionRecord>> list() const;  // newest first
  // The id, or the beginning of exactly one. not_found; invalid_argument when it fits several.
  Result<SessionRecord> find(std::string_view id_or_prefix) const;
  // failed_precondition while it runs.
  Status remove(const SessionId& id);

 private:
  struct State;
  explicit SessionStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace anchorhold::session
