// What a model is offered in every task, by name: shell, shell_job, read_output, read_file, write_file,
// edit_file, list, glob, grep, fetch_url, plan, ask_user, deliver.
#pragma once

#include <vector>

#include "agent/provider.h"

namespace anchorhold::agent {

std::vector<ToolSpec> tool_specs();

}  // namespace anchorhold::agent
