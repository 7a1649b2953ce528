// What the model can call. A tool gets arguments that fit its schema, and answers with an outcome: whatever
// goes wrong is text for the model, never the end of the task. Tools have no state of their own and are used
// by the task's thread only.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/task.h"
#include "agent/web_access.h"
#include "json.h"
#include "progress.h"

namespace anchorhold::agent {

// Background jobs of this run that may still be running. The guest goes with the host process, so they are
// not stored.
using RunningJobs = std::set<JobId>;

struct ToolContext {
  Workspace& workspace;
  FileAccess& files;
  const Grants& grants;
  const Limits& limits;
  const AskUser& ask_user;
  const StoredTask::Progress& store;  // for reading what was kept
  RunningJobs& jobs;
  std::uint64_t call_number;
  std::stop_token stop;
  std::size_t result_cap;             // bytes of a result that go to the model
  std::uint64_t stored_output_left;   // bytes of full output that may still be stored for this task
  std::filesystem::path output_file;  // where this call's full output goes
  std::function<void(OutputStream, std::string_view)> live;  // output as it arrives, for whoever watches

  // Set by the tool.
  ToolEffects effects;
  std::uint64_t output_bytes = 0;  // what is in output_file

  WebAccess* web = nullptr;  // none: the task has no network
};

class Tool {
 public:
  virtual ~Tool() = default;
  virtual ToolSpec spec() const = 0;
  // One line for a person, before the call: "python3 clean.py".
  virtual std::string describe(const Json& input) const = 0;
  virtual ToolOutcome run(const Json& input, ToolContext& context) const = 0;
};

using ToolSet = std::vector<std::unique_ptr<Tool>>;
ToolSet built_in_tools();
const Tool* find_tool(const ToolSet& tools, std::string_view name);

ToolOutcome tool_ok(std::string text, std::string summary);
ToolOutcome tool_error(std::string text);
// The error's message and hint, for the model.
ToolOutcome tool_error(const Error& error);

// The parts built_in_tools() is made of.
void add_shell_tools(ToolSet& tools);
void add_file_tools(ToolSet& tools);
void add_search_tools(ToolSet& tools);
void add_task_tools(ToolSet& tools);
void add_web_tools(ToolSet& tools);

// A path as a model gives it: "report/a.csv" is meant below /mnt.
std::string guest_path(std::string_view given);

}  // namespace anchorhold::agent
