#include "agent/task.h"
#include "agent/task_store.h"

namespace anchorhold::agent {

std::string_view to_string(FolderMode mode) {
  switch (mode) {
    case FolderMode::read_only:
      return "ro";
    case FolderMode::read_write:
      return "rw";
    case FolderMode::read_write_no_delete:
      return "rw-no-delete";
  }
  return "ro";
}

std::string_view to_string(TaskEnd end) {
  switch (end) {
    case TaskEnd::completed:
      return "completed";
    case TaskEnd::stopped:
      return "stopped";
    case TaskEnd::limit:
      return "limit";
    case TaskEnd::failed:
      return "failed";
  }
  return "failed";
}

std::string_view to_string(PlanItem::State state) {
  switch (state) {
    case PlanItem::State::pending:
      return "pending";
    case PlanItem::State::in_progress:
      return "in_progress";
    case PlanItem::State::done:
      return "done";
  }
  return "pending";
}

std::string_view to_string(ToolVerdict verdict) {
  switch (verdict) {
    case ToolVerdict::ok:
      return "ok";
    case ToolVerdict::error:
      return "error";
    case ToolVerdict::interrupted:
      return "interrupted";
  }
  return "error";
}

std::string_view to_string(TaskState state) {
  switch (state) {
    case TaskState::ready:
      return "ready";
    case TaskState::running:
      return "running";
    case TaskState::completed:
      return "completed";
    case TaskState::stopped:
      return "stopped";
    case TaskState::limit:
      return "limit";
    case TaskState::failed:
      return "failed";
  }
  return "failed";
}

}  // namespace anchorhold::agent
