// The commands. Each runs to its end on the calling thread and gives back the exit status, or why it failed
// (status 125).
#pragma once

#include "base/error.h"
#include "cli/arguments.h"
#include "console.h"
#include "signals.h"

namespace anchorhold::cli {

Result<int> run_command(const RunCommand& command, Console& console, Signals& signals);
Result<int> run_task_command(const TaskCommand& command, Console& console, Signals& signals);
Result<int> run_sessions_command(const SessionsCommand& command, Console& console, Signals& signals);
Result<int> run_changes_command(const ChangesCommand& command, Console& console);
Result<int> run_undo_command(const UndoCommand& command, Console& console);
Result<int> run_events_command(const EventsCommand& command, Console& console, Signals& signals);
Result<int> run_egress_command(const EgressCommand& command, Console& console);
Result<int> run_image_command(const ImageCommand& command, Console& console, Signals& signals);
Result<int> run_credential_command(const CredentialCommand& command, Console& console);
Result<int> run_doctor_command(const DoctorCommand& command, Console& console, Signals& signals);

}  // namespace anchorhold::cli
