// A task: what it may do, how it ended, who watches it, and the loop that runs it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "agent/file_access.h"
#include "agent/message.h"
#include "agent/provider.h"
#include "agent/web_access.h"
#include "agent/workspace.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/id.h"
#include "base/units.h"

namespace anchorhold::events {
class EventSink;
}

namespace anchorhold::agent {

enum class FolderMode { read_only, read_write, read_write_no_delete };
std::string_view to_string(FolderMode mode);

struct FolderGrant {
  std::string host_path;   // "/home/a/report"
  std::string guest_path;  // "/mnt/report"
  FolderMode mode = FolderMode::read_only;
};

// What may be done in each of the folders. None, 0: what holds when nobody says.
struct FolderLimits {
  std::optional<std::uint32_t> bulk_changes;  // in a minute, before the person is asked; 0: never
  ByteSize bytes_written;
  std::uint64_t files = 0;
  bool refuse_escaping_symlinks = false;
};

// The real boundaries, as they are in force: the system prompt is written from this, and from what the
// network reaches at that moment, and from nothing else.
struct Grants {
  std::vector<FolderGrant> folders;
  FolderLimits folder_limits;
  std::uint32_t cpus = 0;  // 0: not known
  ByteSize memory;         // 0: not known
  std::string image;       // the guest image's name
};

struct Limits {
  std::uint32_t turns = 200;
  std::chrono::milliseconds wall_time =
      std::chrono::hours(2);          // of running, summed over resumptions; 0: none
  std::uint64_t tokens = 0;           // in and out, cached or not; 0: none
  std::uint32_t concurrent_jobs = 8;  // background jobs at once
};

// Everything that is fixed when a task is made. Stored with it, so it can be resumed; holds no secret.
struct TaskSpec {
  std::string prompt;
  ProviderSpec provider;
  Grants grants;
  Limits limits;
};

enum class TaskEnd {
  completed,  // the model had nothing more to do
  stopped,    // on request; can be resumed
  limit,      // a limit was reached; reason says which
  failed,     // reason says why
};
std::string_view to_string(TaskEnd end);

struct Output {
  std::string path;  // as the guest sees it
  std::string host_path;
  std::string description;
  std::uint64_t size = 0;
};

struct PlanItem {
  enum class State { pending, in_progress, done };
  std::string text;
  State state = State::pending;
};
std::string_view to_string(PlanItem::State state);

struct TaskOutcome {
  TaskEnd end = TaskEnd::completed;
  std::string reason;  // one sentence for a person; empty when completed
  std::string hint;
  std::string answer;  // the model's last words
  std::vector<Output> outputs;
  Usage usage;
  std::uint32_t turns = 0;
};

struct ToolCall {
  std::uint64_t number = 0;  // of this task, from 1
  std::string id;            // the model's
  std::string name;
  std::string input;    // JSON text as the model gave it
  std::string summary;  // one line for a person: "shell: python3 clean.py"
};

enum class ToolVerdict { ok, error, interrupted };
std::string_view to_string(ToolVerdict verdict);

struct ToolOutcome {
  ToolVerdict verdict = ToolVerdict::ok;
  std::string text;     // what the model is told
  std::string summary;  // one line for a person: "exit status 1", "312 lines"
  std::chrono::milliseconds duration{0};
};

// What front ends and the event log hear. Called on the task's thread; return quickly.
class TaskObserver {
 public:
  virtual ~TaskObserver() = default;
  virtual void turn_began(std::uint32_t /*turn*/) {}
  virtual void text(std::string_view /*delta*/) {}
  virtual void thinking(std::string_view /*delta*/) {}
  // What was shown of this turn is void; the model is asked again after the delay.
  virtual void turn_restarted(std::string_view /*reason*/, std::chrono::milliseconds /*delay*/) {}
  virtual void turn_ended(const Turn&) {}
  virtual void plan(const std::vector<PlanItem>&) {}
  virtual void tool_began(const ToolCall&) {}
  virtual void tool_output(const ToolCall&, OutputStream, std::string_view /*bytes*/) {}
  virtual void tool_ended(const ToolCall&, const ToolOutcome&) {}
  virtual void output(const Output&) {}
  virtual void usage(const Usage& /*total*/, std::uint32_t /*turns*/) {}
  // Something the person should know that ends nothing ("older tool results were dropped from the model's
  // view").
  virtual void notice(std::string_view) {}
  virtual void ended(const TaskOutcome&) {}
};

// Asks the person and waits; the answer, or ErrorCode::cancelled when the task is stopped meanwhile.
using AskUser = std::function<Result<std::string>(
    const std::string& question, const std::vector<std::string>& choices, std::stop_token stop)>;

enum class WarmUp { at_start, at_first_sign };

// What a task runs with. All of it outlives the run.
struct TaskParts {
  Provider& provider;
  Workspace& workspace;
  FileAccess& files;
  TaskObserver& observer;
  Clock& clock;
  Executor& timer;   // for the wall time limit; another thread's than the task's
  AskUser ask_user;  // empty: nobody is there, and the model is told so
  // at_start: the guest boots while the model thinks for the first time; at_first_sign: when it names the
  // shell tool.
  WarmUp warm_up = WarmUp::at_start;
  events::EventSink* events = nullptr;  // tool calls and model calls are recorded here; none: nowhere
  WebAccess* web = nullptr;             // none: there is no network, and the model is told so
};

class StoredTask;  // agent/task_store.h

// Runs the task from where it stands until it ends, on the calling thread. Every step is stored before the
// next begins: after a kill at any point, opening the stored task and calling this again goes on, and no tool
// call is run twice. An Error means that the store failed; everything else is an outcome.
Result<TaskOutcome> run_task(StoredTask& task, const TaskParts& parts, std::stop_token stop);

// What the model is told when these were granted while it works; pure.
std::string new_folders_text(const std::vector<FolderGrant>& folders);
// The system prompt for these grants; pure. `attended`: somebody can answer ask_user.
std::string system_prompt(const Grants& grants, const NetworkReach& network, const Limits& limits,
                          bool attended);

}  // namespace anchorhold::agent
