// The agent's way to the guest (agent/workspace.h), over a session: commands start the guest when they need
// it, and when there is none, say why.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "agent/workspace.h"
#include "session/session.h"

namespace anchorhold::session {

class SessionWorkspace : public agent::Workspace {
 public:
  // The session outlives it.
  explicit SessionWorkspace(Session& session) : session_(session) {}

  void warm_up() override { session_.warm_up(); }
  Result<agent::ShellEnd> run(const agent::ShellCommand& command, const agent::OutputSink& sink,
                              std::stop_token stop) override;
  Result<agent::JobStart> start_job(const agent::ShellCommand& command, std::stop_token stop) override;
  Result<agent::JobState> poll_job(const agent::JobId& id, std::uint64_t offset, std::size_t max_bytes,
                                   std::chrono::milliseconds wait, std::stop_token stop) override;
  Status kill_job(const agent::JobId& id) override;

 private:
  struct Job {
    std::shared_ptr<Guest> guest;
    ExecId exec;
    bool end_recorded = false;
  };
  Result<Job*> find_job(const agent::JobId& id);

  Session& session_;
  std::map<agent::JobId, Job> jobs_;  // the task's thread's
};

// How a command's end is told to the agent; pure.
agent::ShellEnd to_shell_end(const ExecStatus& status);

}  // namespace anchorhold::session
