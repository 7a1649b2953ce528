#include <algorithm>
#include <fmt/format.h>

#include "spec_json.h"
#include "text.h"
#include "tool.h"

namespace anchorhold::agent {
namespace {

class Plan : public Tool {
 public:
  ToolSpec spec() const override {
    return {
        "plan",
        "Shows the person what you are going to do and how far you are. Each call replaces the whole plan.",
        R"({"type":"object","additionalProperties":false,"required":["items"],"properties":{
"items":{"type":"array","minItems":1,"maxItems":50,"items":{"type":"object","additionalProperties":false,"required":["text"],"properties":{
"text":{"type":"string","minLength":1,"maxLength":500},
"state":{"type":"string","enum":["pending","in_progress","done"]}}}}}})"};
  }

  std::string describe(const Json& input) const override {
    return counted(member(input, "items").size(), "step", "steps");
  }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    auto plan = plan_from_json(member(input, "items"));
    auto done = static_cast<std::size_t>(std::count_if(
        plan.begin(), plan.end(), [](const PlanItem& item) { return item.state == PlanItem::State::done; }));
    std::string summary = fmt::format("{} of {} done", done, plan.size());
    context.effects.plan = std::move(plan);
    return tool_ok("the plan is shown", std::move(summary));
  }
};

class Ask : public Tool {
 public:
  ToolSpec spec() const override {
    return {"ask_user",
            "Asks the person a question and waits for the answer. Only for what you cannot find out or "
            "decide yourself.",
            R"({"type":"object","additionalProperties":false,"required":["question"],"properties":{
"question":{"type":"string","minLength":1,"maxLength":4000},
"choices":{"type":"array","maxItems":10,"items":{"type":"string","minLength":1,"maxLength":500}}}})"};
  }

  std::string describe(const Json& input) const override { return one_line(string_or(input, "question")); }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    if (!context.ask_user)
      return tool_error(
          "nobody is there to answer: decide yourself, take the careful choice, and say in your last message "
          "what you assumed");
    std::vector<std::string> choices;
    for (const Json& choice : member(input, "choices")) choices.push_back(choice.get<std::string>());
    auto answer = context.ask_user(string_or(input, "question"), choices, context.stop);
    if (!answer) {
      auto outcome = tool_error(answer.error());
      if (answer.error().code == ErrorCode::cancelled) outcome.verdict = ToolVerdict::interrupted;
      return outcome;
    }
    std::string text = clean_utf8(*answer);
    std::string summary = one_line(text);
    return tool_ok(text.empty() ? "[the answer is empty]" : std::move(text), std::move(summary));
  }
};

class Deliver : public Tool {
 public:
  ToolSpec spec() const override {
    return {"deliver",
            "Marks a file in a granted folder as a result of the task, so that the person finds it. The file "
            "stays where it is.",
            R"({"type":"object","additionalProperties":false,"required":["path"],"properties":{
"path":{"type":"string","minLength":1,"maxLength":4096},
"description":{"type":"string","maxLength":500,"description":"what it is, in one line"}}})"};
  }

  std::string describe(const Json& input) const override { return one_line(string_or(input, "path")); }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    std::string path = guest_path(string_or(input, "path"));
    if ((path + "/").find("/../") != path.npos) return tool_error("give the path without \"..\"");
    const FolderGrant* grant = grant_of(context.grants, path);
    if (!grant)
      return tool_error(fmt::format("{} is not in a granted folder: the person would not find it", path));
    auto info = context.files.stat(path);
    if (!info) return tool_error(info.error());
    if (info->kind != FileKind::file) return tool_error(fmt::format("{} is not a file", path));
    std::string host_path = grant->host_path + path.substr(grant->guest_path.size());
    context.effects.delivered =
        Output{path, host_path, one_line(string_or(input, "description"), 500), info->size};
    return tool_ok(fmt::format("{} is marked as a result", path), counted(info->size, "byte", "bytes"));
  }

 private:
  static const FolderGrant* grant_of(const Grants& grants, const std::string& path) {
    for (const FolderGrant& grant : grants.folders) {
      if (path.starts_with(grant.guest_path) && path.size() > grant.guest_path.size() &&
          path[grant.guest_path.size()] == '/')
        return &grant;
    }
    return nullptr;
  }
};

}  // namespace

void add_task_tools(ToolSet& tools) {
  tools.push_back(std::make_unique<Plan>());
  tools.push_back(std::make_unique<Ask>());
  tools.push_back(std::make_unique<Deliver>());
}

}  // namespace anchorhold::agent
