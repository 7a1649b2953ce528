// What this process does for others while it runs a session (session/control.h).
#pragma once

#include <memory>

#include "agent/task.h"
#include "base/clock.h"
#include "console.h"
#include "session/control.h"
#include "session/session.h"

namespace anchorhold::cli {

// From now on the session can be given more folders; a task's model is told of them. Destroy it after the
// session was closed.
Result<std::unique_ptr<session::ControlServer>> open_door(session::Session& session, const TaskId& task,
                                                          Console& console, const Clock& clock);

// For SessionParts::answered: a session that is resumed has its answers again.
void keep_answers(const SessionId& session, const std::vector<policy::EgressRule>& answers, Console& console,
                  const Clock& clock);

agent::FolderMode folder_mode(mounts::Mode mode);

}  // namespace anchorhold::cli
