// The commands in a session's guest: what the event log says of each, and what a question may name as
// running.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "events/event.h"
#include "session/guest.h"

namespace anchorhold::session {

events::Event exec_start_event(const hypervisor::MachineId& guest, const ExecId& exec, const ExecSpec& spec,
                               bool background);
events::Event exec_end_event(const hypervisor::MachineId& guest, const ExecId& exec,
                             const Result<ExecStatus>& status);

// Safe from any thread.
class RunningCommands {
 public:
  void began(const ExecId& exec, const ExecSpec& spec);
  void ended(const ExecId& exec);
  // The guest is gone, and all of them with it.
  void all_ended();
  // In one line, shortened; the latest first, since that is the likeliest to be what a question is about.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<ExecId, std::string>> commands_;
};

}  // namespace anchorhold::session
