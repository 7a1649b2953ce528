// What a task is made of as JSON for its database. Unknown members are ignored, missing ones take their
// defaults, so that a field can be added without a new schema.
#pragma once

#include "agent/task.h"
#include "json.h"

namespace anchorhold::agent {

Json to_json(const TaskSpec& spec);
// Anything unknown is the strictest.
FolderMode folder_mode_from(std::string_view text);
TaskSpec spec_from_json(const Json& json);
Json to_json(const std::vector<PlanItem>& plan);
std::vector<PlanItem> plan_from_json(const Json& json);

}  // namespace anchorhold::agent
