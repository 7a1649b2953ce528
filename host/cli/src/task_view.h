// Shows a task as it happens: to a person as text, to a program as objects. On standard output, since it is
// the result.
#pragma once

#include <string>

#include "agent/task.h"
#include "console.h"

namespace anchorhold::cli {

Json to_json(const agent::Output& output);
Json to_json(const std::vector<agent::PlanItem>& plan);
Json to_json(const agent::Usage& usage);
std::string to_line(const agent::PlanItem& item);

class TaskView : public agent::TaskObserver {
 public:
  explicit TaskView(Console& console) : console_(console) {}

  void turn_began(std::uint32_t turn) override;
  void text(std::string_view delta) override;
  void turn_restarted(std::string_view reason, std::chrono::milliseconds delay) override;
  void turn_ended(const agent::Turn& turn) override;
  void plan(const std::vector<agent::PlanItem>& plan) override;
  void tool_began(const agent::ToolCall& call) override;
  void tool_output(const agent::ToolCall& call, agent::OutputStream stream, std::string_view bytes) override;
  void tool_ended(const agent::ToolCall& call, const agent::ToolOutcome& outcome) override;
  void output(const agent::Output& output) override;
  void notice(std::string_view text) override;
  void ended(const agent::TaskOutcome& outcome) override;

 private:
  void end_text_line();

  Console& console_;
  bool in_text_ = false;  // the cursor is behind words of the model
};

}  // namespace anchorhold::cli
