// The agent's only way to the guest. The session implements it over the guest channel; tests over a fake.
// Every function is called from the thread that runs the task, one at a time, except warm_up(), which may
// come from any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold::agent {

struct ShellCommand {
  std::string command;                             // for the guest's shell: bash -c COMMAND
  std::string working_directory;                   // a path in the guest; empty: the workspace's own choice
  std::map<std::string, std::string> environment;  // added to the workspace's own
  std::chrono::milliseconds time_limit{0};         // 0: none
  bool tty = false;  // one terminal; everything then arrives as OutputStream::out
};

enum class OutputStream { out, err };

// Takes the next piece of output (at most 64 KiB) and returns when it has been taken care of: nothing more is
// read from the command until then, which is the back-pressure. False: no more is wanted, the command is to
// be killed.
using OutputSink = std::function<bool(OutputStream stream, std::string_view bytes)>;

// How a command ended, or why it did not start. None of these is an error of ours: the model is told and goes
// on.
struct ShellEnd {
  enum class Cause {
    exited,         // code is valid
    signalled,      // signal is valid
    time_limit,     // ran longer than allowed and was killed with everything it had started
    out_of_memory,  // killed by the guest's memory limit
    killed,         // because the stop token, the sink or kill_job said so
    guest_lost,     // the guest died under it; detail says how
    unavailable,    // there is no guest; detail is the true cause ("no KVM and no QEMU: install
                    // qemu-system-x86")
    refused,        // the guest could not start it (no such folder, arguments too long); detail says why
  };
  Cause cause = Cause::exited;
  int code = 0;
  int signal = 0;
  std::string detail;
};

// Names a background job of one workspace; never reused within it.
using JobId = std::string;

struct JobStart {
  JobId id;  // empty: it did not start, and end says why
  ShellEnd end;
};

struct JobState {
  bool running = false;
  ShellEnd end;        // valid when not running
  std::string output;  // stdout and stderr in the order of arrival, from the offset that was asked for
  std::uint64_t next_offset = 0;  // ask from here the next time
  std::uint64_t lost = 0;         // bytes between the asked offset and the output that are no longer kept
};

class Workspace {
 public:
  virtual ~Workspace() = default;

  // Begins starting the guest, ahead of need, and returns at once. Harmless when it runs already.
  virtual void warm_up() = 0;

  // Starts the guest if needed, runs the command and waits for its end. A stop request kills the command's
  // whole tree and returns soon after. An Error only for what is a fault of the host itself; a missing guest
  // is a ShellEnd.
  virtual Result<ShellEnd> run(const ShellCommand& command, const OutputSink& sink, std::stop_token stop) = 0;

  // The same, without waiting: the job lives until it ends, is killed, or the guest goes.
  virtual Result<JobStart> start_job(const ShellCommand& command, std::stop_token stop) = 0;
  // Output from offset on, at most max_bytes. Waits up to `wait` for news: more output or the end.
  // ErrorCode::not_found for a job this workspace does not know (for example one from before a restart of the
  // host).
  virtual Result<JobState> poll_job(const JobId& id, std::uint64_t offset, std::size_t max_bytes,
                                    std::chrono::milliseconds wait, std::stop_token stop) = 0;
  // Kills the whole tree. Harmless when it has ended.
  virtual Status kill_job(const JobId& id) = 0;
};

}  // namespace anchorhold::agent
