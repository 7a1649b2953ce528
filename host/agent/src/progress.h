// A task's database as the loop writes it. Each function is one transaction and is on the disk when it
// returns.
//
// Steps: begin() → append_turn() (the model's message and its calls, pending) → for each call call_running(),
// call_done() → append_user() (the results) → … → end().
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "agent/task_store.h"
#include "base/fd.h"
#include "database/database.h"

namespace anchorhold::agent {

// What a tool changed besides its outcome, stored in the same transaction.
struct ToolEffects {
  std::optional<std::vector<PlanItem>> plan;
  std::optional<Output> delivered;
};

class StoredTask::Progress {
 public:
  Progress(TaskId id, TaskSpec spec, std::filesystem::path folder, database::Database database, UniqueFd lock,
           const Clock& clock)
      : id_(std::move(id)),
        spec_(std::move(spec)),
        folder_(std::move(folder)),
        lock_(std::move(lock)),
        database_(std::move(database)),
        clock_(clock) {}

  // Marks the task as running; calls that ran when the last host died become interrupted, with this text for
  // the model.
  Status begin(std::string_view interrupted_text);
  // What the model is told next: results of its calls, or a word from the person.
  Status append_user(const Message& message);
  // Gives each call its number. Usage is added to the task's.
  Status append_turn(const Turn& turn, std::vector<ToolCall>& calls);
  // Usage of a turn that is not kept (refused, or too large for the window).
  Status add_usage(const Usage& usage);
  // Folders that were granted since the model was told the last time: among the spec's from now on, and told
  // in this message, which is stored. Nothing: there are none.
  Result<std::optional<Message>> take_new_folders();
  Status call_running(std::uint64_t number);
  Status call_done(std::uint64_t number, const ToolOutcome& outcome, std::uint64_t output_bytes,
                   const ToolEffects& effects);
  // Results of calls up to this number are shown to the model shortened.
  Status set_shortened_through(std::uint64_t number);
  Status change_spec(const Limits& limits, const ProviderSpec& provider);
  Status add_active_time(std::chrono::milliseconds time);
  Status end(const TaskOutcome& outcome);

  Result<std::vector<Message>> messages() const;
  Result<std::vector<StoredCall>> calls() const;
  // Of the newest message, which is the model's.
  Result<StopReason> last_stop_reason() const;
  // Calls of the newest message, in order.
  Result<std::vector<StoredCall>> open_calls() const;
  Result<std::vector<PlanItem>> plan() const;
  Result<std::vector<Output>> outputs() const;
  struct Totals {
    Usage usage;
    std::uint32_t turns = 0;
    std::chrono::milliseconds active{0};
    std::uint64_t shortened_through = 0;
    std::uint64_t stored_output_bytes = 0;
  };
  Result<Totals> totals() const;
  Result<TaskSummary> summary() const;
  Result<std::string> read_output(std::uint64_t call, std::uint64_t offset, std::size_t max_bytes) const;

  const TaskId& id() const { return id_; }
  const TaskSpec& spec() const { return spec_; }
  // Where the full output of this call goes; the folder exists.
  std::filesystem::path output_file(std::uint64_t call) const;

 private:
  Status touch() const;
  Result<std::vector<StoredCall>> read_calls(std::string_view condition) const;

  TaskId id_;
  TaskSpec spec_;
  std::filesystem::path folder_;
  UniqueFd lock_;
  mutable database::Database database_;  // reading needs its statements
  const Clock& clock_;
};

// Granted after the task was made; `condition` is SQL.
Result<std::vector<FolderGrant>> read_granted(database::Database& database, std::string_view condition);
// As it was when the task was made, or changed.
Result<TaskSpec> read_spec(database::Database& database);
// The task's row, from a database opened by anybody.
Result<TaskSummary> read_summary(database::Database& database, const TaskId& id);

}  // namespace anchorhold::agent
