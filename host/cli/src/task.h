// Running a stored task to its end: what `task` does with a new one and `sessions resume` with an old one.
#pragma once

#include "agent/task_store.h"
#include "host.h"
#include "signals.h"

namespace anchorhold::cli {

Result<agent::TaskStore> open_task_store();

// `grants` are those of the task, opened again; `provider` says where its model is now.
Result<int> run_stored_task(agent::StoredTask task, std::vector<mounts::Grant> grants,
                            const agent::ProviderSpec& provider, const GuestArguments& guest, Host& host,
                            Signals& signals);
// Opens the task's folders again and runs it from where it stands.
Result<int> resume_task(const TaskId& id, const SessionsCommand& command, Console& console, Signals& signals);

}  // namespace anchorhold::cli
