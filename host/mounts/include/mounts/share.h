// The sealed processes of one grant: started, watched, ended. The keeper (unless the grant is read-only) runs
// from the beginning, so that the host's tools can work before there is a guest; a reader runs for each
// guest. How the programs are started: mounts/programs.h.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/error.h"
#include "mounts/access.h"
#include "mounts/grant.h"
#include "mounts/host_change.h"
#include "mounts/report.h"

namespace anchorhold::mounts {

enum class ShareProcess { reader, keeper, spares };  // spares: mounts/spares.h
std::string_view to_string(ShareProcess process);

// What a share tells its owner.
struct ShareNotice {
  enum class Kind {
    report,      // what the process said, in report
    question,    // a change waits for an answer: Share::answer() with report.question
    suppressed,  // the process said more than a person could read; count of what was left out in report.lost
    ended,  // the process is gone without having been asked to. A guest's device cannot be attached again.
  };
  Kind kind = Kind::report;
  ShareProcess process = ShareProcess::reader;
  std::string grant{};  // its name
  Report report{};
  std::string cause{};  // ended: the true cause, one line
};

// What a session may do in one grant before it is refused, or a person is asked. 0: the keeper's own default.
struct ShareLimits {
  std::uint32_t bulk_changes =
      0;  // removals and rewrites of old things in a minute, before a person is asked
  bool no_bulk_guard = false;
  std::chrono::seconds answer{0};  // how long a change waits for the answer
  std::uint64_t bytes_written = 0;
  std::uint64_t files = 0;
  bool refuse_escaping_symlinks = false;
};

struct ShareSpec {
  // One for each grant and session, made here (0700; mounts/review.h says what is in it); unused under ro.
  std::filesystem::path ledger_folder{};
  std::vector<std::string> hidden{};  // empty: the standard list
  std::uint64_t ledger_quota = 0;     // bytes; 0: the keeper's default
  ShareLimits limits{};
  bool allow_weak = false;  // see SealPolicy
  // Called on a thread of the share; must not block for long and must not call back into it.
  std::function<void(const ShareNotice&)> on_notice{};
  // What programs of the host change in the folder while a guest is served, in order; called as on_notice is.
  // None, or as soon as it returns false: nothing is watched, and the guest remembers what it saw for a
  // second only.
  std::function<bool(HostChange)> on_host_change{};
};

// Owned by one thread. The destructor ends both processes; the ledger stays.
class Share {
 public:
  // Returns when the keeper is sealed and serves. The grant's descriptor is duplicated.
  static Result<std::unique_ptr<Share>> start(const Grant& grant, ShareSpec spec);
  ~Share();

  // Starts a reader that listens on a new unix socket at this path (at most 107 bytes, in a private folder)
  // for one guest's hypervisor, and returns when it is sealed. A reader of an earlier guest is ended first.
  Status serve_guest(const std::filesystem::path& socket_path);
  void end_guest();

  // Safe from any thread. Calls `done` once: when on_host_change was called for all that programs of the
  // host, and the host's own tools, had changed in the folder before, or when that is not known: at once
  // where nothing is watched. `done` is called on this thread or one of the share's, and must not block and
  // not call back.
  void settle(std::function<void()> done);

  // Safe from any thread. The same question answered twice, or one nobody asks any more: nothing happens.
  void answer(std::uint64_t question, Verdict verdict);

  // For FileAccess: the same grant through the same keeper.
  Result<AccessibleGrant> accessible() const;
  // -1 when it does not run.
  pid_t pid(ShareProcess process) const;

 private:
  struct State;
  explicit Share(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace anchorhold::mounts
