#include "tool.h"

#include <fmt/format.h>

#include "agent/tools.h"
#include "text.h"

namespace anchorhold::agent {

ToolSet built_in_tools() {
  ToolSet tools;
  add_shell_tools(tools);
  add_file_tools(tools);
  add_search_tools(tools);
  add_task_tools(tools);
  add_web_tools(tools);
  return tools;
}

std::vector<ToolSpec> tool_specs() {
  std::vector<ToolSpec> specs;
  for (const auto& tool : built_in_tools()) specs.push_back(tool->spec());
  return specs;
}

const Tool* find_tool(const ToolSet& tools, std::string_view name) {
  for (const auto& tool : tools) {
    if (tool->spec().name == name) return tool.get();
  }
  return nullptr;
}

ToolOutcome tool_ok(std::string text, std::string summary) {
  return {ToolVerdict::ok, std::move(text), std::move(summary), {}};
}

ToolOutcome tool_error(std::string text) {
  std::string summary = one_line(text);
  return {ToolVerdict::error, std::move(text), std::move(summary), {}};
}

ToolOutcome tool_error(const Error& error) {
  return tool_error(error.hint.empty() ? error.message : fmt::format("{} ({})", error.message, error.hint));
}

std::string guest_path(std::string_view given) {
  if (given.starts_with('/')) return std::string(given);
  while (given.starts_with("./")) given.remove_prefix(2);
  return given.empty() || given == "." ? "/mnt" : fmt::format("/mnt/{}", given);
}

}  // namespace anchorhold::agent
