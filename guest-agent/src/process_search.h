// Finding the processes of a command where there is no control group: by the variable ANCHORHOLD_EXEC_ID,
// which they inherit. Good enough for an agent that runs outside a guest; a process may clear its environment
// and be missed.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace anchorhold::guest {

std::vector<pid_t> processes_of(const std::string& exec_id);
// Kills until none is found.
void kill_processes_of(const std::string& exec_id);

}  // namespace anchorhold::guest
