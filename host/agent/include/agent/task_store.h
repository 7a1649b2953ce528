// Where tasks live: <state>/tasks/<id>/ with task.db (SQLite, WAL, synchronous=FULL) and outputs/ (what tools
// printed, in full). One folder per task, so that removing one is removing a folder and a damaged one harms
// no other. A StoredTask holds the task's lock: one process at a time runs it, also across crashes. Owned by
// one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/task.h"
#include "base/error.h"
#include "base/id.h"

namespace anchorhold::agent {

enum class TaskState {
  ready,    // made, or interrupted between steps: run_task goes on from here
  running,  // a process runs it now
  completed,
  stopped,
  limit,
  failed,
};
std::string_view to_string(TaskState state);

struct TaskSummary {
  TaskId id;
  TaskState state = TaskState::ready;
  std::string reason;  // of the end
  std::string prompt;
  std::string model;
  WallTime created{};
  WallTime changed{};
  std::uint32_t turns = 0;
  Usage usage;
  std::vector<Output> outputs;
};

// A tool call as stored. pending → running → done; running at the time of a kill → interrupted.
struct StoredCall {
  enum class State { pending, running, done, interrupted };
  ToolCall call;
  State state = State::pending;
  ToolOutcome outcome;             // valid when done or interrupted
  std::uint64_t output_bytes = 0;  // size of the full output; 0: none was kept apart
};

class StoredTask {
 public:
  ~StoredTask();
  StoredTask(StoredTask&&) noexcept;
  StoredTask& operator=(StoredTask&&) noexcept;

  const TaskId& id() const;
  const TaskSpec& spec() const;
  Result<TaskSummary> summary() const;
  // The whole conversation, oldest first; nothing is ever dropped here.
  Result<std::vector<Message>> messages() const;
  Result<std::vector<StoredCall>> calls() const;
  Result<std::vector<PlanItem>> plan() const;
  // Part of a call's full output. not_found: there is none.
  Result<std::string> read_output(std::uint64_t call, std::uint64_t offset, std::size_t max_bytes) const;

  // Other limits, or another place or name of its model, from its next run on.
  Status change(const Limits& limits, const ProviderSpec& provider);

  // What the loop writes through; private to this room.
  class Progress;
  Progress& progress();

 private:
  friend class TaskStore;
  explicit StoredTask(std::unique_ptr<Progress> progress);
  std::unique_ptr<Progress> progress_;
};

class TaskStore {
 public:
  // Makes the folder (0700) if needed; normally state_directory() / "tasks".
  static Result<TaskStore> open(std::filesystem::path directory);

  Result<StoredTask> create(TaskSpec spec, const Clock& clock);
  // ErrorCode::unavailable: another process runs it. not_found. data_loss: damaged, or written by a newer
  // version.
  Result<StoredTask> open_task(const TaskId& id, const Clock& clock);
  // Newest first; does not need the lock. Damaged tasks are left out and named in `damaged`.
  Result<std::vector<TaskSummary>> list(std::vector<std::string>* damaged = nullptr) const;
  Result<TaskSummary> summary(const TaskId& id) const;
  // One folder more, also while another thread or process runs the task: its model is told before it is asked
  // the next time, and the folder is among the task's when it is opened again.
  Status add_folder(const TaskId& id, const FolderGrant& folder) const;
  // unavailable while it runs.
  Status remove(const TaskId& id);

 private:
  explicit TaskStore(std::filesystem::path directory) : directory_(std::move(directory)) {}
  std::filesystem::path folder_of(const TaskId& id) const { return directory_ / id.value(); }
  std::filesystem::path directory_;
};

}  // namespace anchorhold::agent
