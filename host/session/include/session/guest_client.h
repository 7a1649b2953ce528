// The host's typed client of the guest agent (proto/guest.proto): commands with their streams, clock, shares,
// statistics, shutdown. No gRPC type is visible here.
//
// Threads: every function may be called from any thread, and blocks the caller only. A stop token ends the
// wait, and where a command is waited for, the command with it. Nothing here may be called from a thread that
// serves others.
//
// Errors: what a command did (exit, signal, limits, could not start) is an ExecStatus, a value. A guest that
// is gone is ErrorCode::unavailable, "guest lost: <cause>", with the cause from GuestClientSpec::lost_cause.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/units.h"

namespace anchorhold::session {

// The largest piece of input or output in one message.
inline constexpr std::size_t max_chunk_bytes = 64 * 1024;

enum class OutputStream { standard_output, standard_error };

struct TerminalSize {
  std::uint32_t rows = 24;
  std::uint32_t columns = 80;
};

struct ExecSpec {
  // Exactly one of both. All strings together at most 2 MiB, each at most 128 KiB (the kernel's limits).
  std::vector<std::string> argv;  // argv[0] is looked up in PATH unless it has a slash
  std::string shell_command;      // for bash -c (sh -c where there is no bash)

  std::map<std::string, std::string> environment;
  bool clear_environment = false;  // else added to PATH, HOME, USER, LOGNAME, SHELL, LANG, TERM
  std::string working_directory;   // empty: the user's home
  std::string user;                // empty: the guest's unprivileged user; "root" must be asked for

  enum class Input { empty, pipe };
  Input input = Input::empty;  // a terminal's input is always fed by write_input()
  enum class Errors { apart, merged, discarded };
  Errors errors = Errors::apart;
  std::optional<TerminalSize> terminal;  // its output is standard_output alone

  std::chrono::milliseconds time_limit{0};  // 0: none
  ByteSize memory_limit;                    // 0: what the guest has
  std::uint32_t process_limit = 0;          // 0: the agent's default
};

struct ExecStatus {
  enum class Cause {
    exited,     // code
    signalled,  // signal
    time_limit,
    out_of_memory,
    process_limit,  // stayed at its limit of processes (a fork bomb) and was killed
    killed,         // by us
    not_started,    // detail says why: no such program, no such folder, arguments too long…
  };
  Cause cause = Cause::exited;
  int code = 0;
  int signal = 0;
  int error_number = 0;  // errno of not_started
  std::string detail;    // for people; empty for exited and signalled
  std::chrono::nanoseconds wall_time{0};
  std::chrono::nanoseconds cpu_time{0};
  ByteSize peak_memory;  // 0: not known

  bool ok() const { return cause == Cause::exited && code == 0; }
};
// "exited with 1", "killed by SIGSEGV", "ran longer than its time limit"…
std::string to_string(const ExecStatus& status);
// As a shell would give it: the code, 128 + signal, 124 for the time limit, 137 when killed, 126 or 127 when
// not started.
int shell_exit_code(const ExecStatus& status);

enum class SignalScope { leader, group, tree };

class GuestClient;

// A running foreground command. Its end of life kills what still runs of it. Each output may be read by one
// thread at a time; a stream that is not read holds back only what the command writes to that stream.
class GuestExec {
 public:
  ~GuestExec();
  GuestExec(const GuestExec&) = delete;
  GuestExec& operator=(const GuestExec&) = delete;

  const ExecId& id() const;
  // The next bytes, never empty; nothing at the output's end. A stop is ErrorCode::cancelled and loses no
  // byte.
  Result<std::optional<std::string>> read(OutputStream stream, std::stop_token stop = {});
  // The next bytes of whichever output has some, for callers with one thread; nothing when both have ended.
  struct Piece {
    OutputStream stream;
    std::string bytes;
  };
  Result<std::optional<Piece>> read_any(std::stop_token stop = {});
  // Returns when all is on its way (a bounded part of it ahead of what the command has read).
  // failed_precondition: the command no longer reads.
  Status write_input(std::span<const std::byte> bytes, std::stop_token stop = {});
  Status write_input(std::string_view text, std::stop_token stop = {});
  // The end of input; on a terminal what Ctrl-D does.
  Status close_input();
  Status signal(int number, SignalScope scope = SignalScope::group);
  Status resize(TerminalSize size);
  // Kills the whole tree; wait() then gives Cause::killed.
  Status kill();
  // Until the command has ended; outputs may still hold bytes. A stop kills the tree and waits for that.
  Result<ExecStatus> wait(std::stop_token stop = {});

 private:
  friend class GuestClient;
  struct State;
  explicit GuestExec(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Called with the bytes as they come. One that does not return holds back its own stream and no other.
using OutputSink = std::function<void(std::string_view bytes)>;

struct OutputSinks {
  OutputSink standard_output;  // empty: bytes are read and dropped
  OutputSink standard_error;
};

struct BackgroundSpec {
  ExecSpec exec;
  ByteSize tail = ByteSize::mib(1);  // kept of each output, at most 16 MiB
};

struct BackgroundOutput {
  std::string bytes;
  std::uint64_t offset = 0;       // of the first byte
  std::uint64_t next_offset = 0;  // give this to the next poll
  std::uint64_t dropped = 0;      // bytes between the asked offset and `offset`: no longer held
  bool at_end = false;            // the output has ended and nothing is left after these bytes
};

struct ExecInfo {
  ExecId id;
  std::string command;  // shortened
  bool background = false;
  std::optional<ExecStatus> status;  // none: it runs
  std::chrono::nanoseconds wall_time{0};
  std::chrono::nanoseconds cpu_time{0};
  ByteSize memory;
  std::uint32_t processes = 0;
  std::uint64_t standard_output_bytes = 0;
  std::uint64_t standard_error_bytes = 0;
  std::uint64_t standard_output_dropped = 0;
  std::uint64_t standard_error_dropped = 0;
};

struct GuestStatistics {
  ByteSize memory_total;
  ByteSize memory_available;
  ByteSize scratch_total;
  ByteSize scratch_used;
  std::chrono::nanoseconds uptime{0};
  double load_1_minute = 0;
  std::uint32_t processes = 0;
  ByteSize agent_memory;
  std::uint32_t agent_threads = 0;
  std::vector<ExecInfo> execs;
};

// What a program of the host changed in a share; mounts/host_change.h says what the kinds mean.
struct ShareChange {
  enum class Kind { content, attributes, appeared, vanished, renamed, lost };
  enum class Object { file, folder, symlink, other };
  Kind kind = Kind::content;
  Object object = Object::file;
  std::string path;      // relative to the share; any bytes
  std::string new_path;  // of a rename
};
inline constexpr std::size_t max_changes_at_once = 1024;

struct GuestInfo {
  std::uint32_t protocol = 0;
  std::string version;  // of the agent's build
  std::string kernel;
  std::uint32_t default_uid = 0;
  ByteSize memory;
  std::uint32_t cpus = 0;
  bool tree_kill = false;
  bool memory_limits = false;
  bool process_limits = false;
  std::chrono::nanoseconds boot_time{0};  // guest's monotonic clock when the agent was ready
};

struct GuestClientSpec {
  std::string session_token;  // at most 64 bytes; the guest's word in its own requests to us
  std::chrono::milliseconds hello_limit{30'000};
  // Why the guest is gone, asked when the stream broke: may wait a moment for the cause to be known. From any
  // thread.
  std::function<std::string()> lost_cause;
};

class GuestClient {
 public:
  // Takes the stream that the guest dialled and says hello. A version mismatch is failed_precondition with
  // both named.
  static Result<std::unique_ptr<GuestClient>> connect(UniqueFd stream, GuestClientSpec spec = {});
  ~GuestClient();
  GuestClient(const GuestClient&) = delete;
  GuestClient& operator=(const GuestClient&) = delete;

  const GuestInfo& info() const;

  // A foreground command with its streams. Returns at once: what hinders the start comes from wait(). An
  // ExecSpec that breaks its own rules is invalid_argument.
  Result<std::unique_ptr<GuestExec>> start(const ExecSpec& spec);
  // start(), feed the input, give the outputs to the sinks, wait. Each sink has a thread of its own.
  Result<ExecStatus> run(const ExecSpec& spec, const OutputSinks& sinks, std::string_view input = {},
                         std::stop_token stop = {});

  // A command that lives on by itself; returns when it has started, or the status of one that could not.
  struct BackgroundStart {
    ExecId id;
    std::optional<ExecStatus> failed;
  };
  Result<BackgroundStart> start_background(const BackgroundSpec& spec);
  // What is held of an output from the offset on, at most max_bytes. When there is nothing yet, waits up to
  // `wait` for bytes or the output's end. not_found: no such job, or it is forgotten.
  Result<BackgroundOutput> poll_output(const ExecId& id, OutputStream stream, std::uint64_t from_offset,
                                       std::size_t max_bytes = std::size_t{16} << 20,
                                       std::chrono::milliseconds wait = std::chrono::milliseconds(0),
                                       std::stop_token stop = {});
  Result<ExecStatus> wait_background(const ExecId& id, std::stop_token stop = {});
  // Kills the tree, if it still runs, and forgets the job with its outputs when asked.
  Status kill_background(const ExecId& id, bool forget = false);

  Result<std::vector<ExecInfo>> list_execs();
  Status signal(const ExecId& id, int number, SignalScope scope = SignalScope::group);

  // Sets the guest's clock; gives back how far it was ahead (negative: behind).
  Result<std::chrono::nanoseconds> set_clock(WallTime now);
  Result<GuestStatistics> statistics();
  // The share of the virtio-fs device `tag` at /mnt/<name>; gives back the path.
  enum class MountMode { read_only, read_write };
  Result<std::string> mount(const std::string& tag, const std::string& name, MountMode mode);
  enum class UnmountMode { when_unused, detach };
  Status unmount(const std::string& name, UnmountMode mode = UnmountMode::when_unused);
  // The guest's kernel forgets what it remembers of these paths, and tells its inotify watchers.
  Status announce(const std::string& name, std::span<const ShareChange> changes);
  // Ends the commands, writes back the shares, powers off. A guest that is gone already is success.
  // The host's egress port is open: programs of the guest are given the way there and trust this authority.
  Status configure_network(const std::string& authority_pem);
  Status shutdown(std::chrono::milliseconds grace = std::chrono::milliseconds(0));

  // Whether the stream to the guest is broken. Once true, always true.
  bool lost() const;

 private:
  struct State;
  explicit GuestClient(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace anchorhold::session
