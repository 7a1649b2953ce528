#include "task_view.h"

#include <fmt/format.h>

#include "base/units.h"

namespace anchorhold::cli {
namespace {

// Of what a tool said, so much is shown; the rest is in the task's record.
constexpr std::size_t shown_lines = 12;
constexpr std::size_t line_limit = 160;

std::string_view mark_of(agent::ToolVerdict verdict) {
  switch (verdict) {
    case agent::ToolVerdict::ok:
      return "✓";
    case agent::ToolVerdict::error:
      return "✗";
    case agent::ToolVerdict::interrupted:
      return "!";
  }
  return "?";
}

// The last lines, indented.
std::string last_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  std::string shown;
  std::size_t first = lines.size() > shown_lines ? lines.size() - shown_lines : 0;
  if (first > 0) shown += fmt::format("    … {} lines before\n", first);
  for (std::size_t i = first; i < lines.size(); ++i) shown += "    " + one_line(lines[i], line_limit) + "\n";
  return shown;
}

}  // namespace

Json to_json(const agent::Output& output) {
  return Json{{"path", output.path},
              {"host_path", output.host_path},
              {"description", output.description},
              {"bytes", output.size}};
}

Json to_json(const std::vector<agent::PlanItem>& plan) {
  Json items = Json::array();
  for (const auto& item : plan)
    items.push_back(Json{{"text", item.text}, {"state", agent::to_string(item.state)}});
  return items;
}

Json to_json(const agent::Usage& usage) {
  return Json{{"input_tokens", usage.input_tokens},
              {"output_tokens", usage.output_tokens},
              {"cache_read_tokens", usage.cache_read_tokens},
              {"cache_write_tokens", usage.cache_write_tokens}};
}

std::string to_line(const agent::PlanItem& item) {
  const char* box = item.state == agent::PlanItem::State::done          ? "[x]"
                    : item.state == agent::PlanItem::State::in_progress ? "[>]"
                                                                        : "[ ]";
  return fmt::format("  {} {}", box, one_line(item.text, line_limit));
}

void TaskView::end_text_line() {
  if (in_text_) console_.text("\n");
  in_text_ = false;
}

void TaskView::turn_began(std::uint32_t turn) {
  console_.object(Json{{"type", "turn"}, {"turn", turn}});
  console_.progress("waiting for the model");
}

void TaskView::text(std::string_view delta) {
  if (delta.empty()) return;
  console_.text(printable(delta));
  in_text_ = !delta.ends_with('\n');
}

void TaskView::turn_restarted(std::string_view reason, std::chrono::milliseconds delay) {
  end_text_line();
  console_.object(Json{{"type", "retry"}, {"reason", reason}, {"delay_ms", delay.count()}});
  console_.line(fmt::format("(the model is asked again in {}: {})", to_string(delay), one_line(reason, 300)));
}

void TaskView::turn_ended(const agent::Turn& turn) {
  end_text_line();
  console_.progress("");
  if (std::string text = agent::text_of(turn.blocks); !text.empty())
    console_.object(Json{{"type", "text"}, {"text", text}});
}

void TaskView::plan(const std::vector<agent::PlanItem>& plan) {
  end_text_line();
  console_.object(Json{{"type", "plan"}, {"items", to_json(plan)}});
  console_.line("plan:");
  for (const auto& item : plan) console_.line(to_line(item));
}

void TaskView::tool_began(const agent::ToolCall& call) {
  end_text_line();
  console_.object(
      Json{{"type", "tool_call"},
           {"number", call.number},
           {"id", call.id},
           {"name", call.name},
           {"input", Json::parse(call.input, nullptr, false).is_discarded() ? Json(call.input)
                                                                            : Json::parse(call.input)},
           {"summary", call.summary}});
  console_.line("→ " + one_line(call.summary, line_limit));
}

void TaskView::tool_output(const agent::ToolCall& call, agent::OutputStream, std::string_view bytes) {
  std::size_t end = bytes.find_last_not_of('\n');
  if (end == std::string_view::npos) return;
  std::size_t begin = bytes.rfind('\n', end);
  begin = begin == std::string_view::npos ? 0 : begin + 1;
  console_.progress(fmt::format("{}: {}", call.name, bytes.substr(begin, end - begin + 1)));
}

void TaskView::tool_ended(const agent::ToolCall& call, const agent::ToolOutcome& outcome) {
  console_.object(Json{{"type", "tool_result"},
                       {"number", call.number},
                       {"id", call.id},
                       {"name", call.name},
                       {"verdict", agent::to_string(outcome.verdict)},
                       {"summary", outcome.summary},
                       {"text", outcome.text},
                       {"duration_ms", outcome.duration.count()}});
  if (outcome.verdict != agent::ToolVerdict::ok || call.name == "shell" || call.name == "shell_job")
    console_.text(last_lines(outcome.text));
  console_.line(fmt::format("  {} {} ({})", mark_of(outcome.verdict), one_line(outcome.summary, line_limit),
                            to_string(outcome.duration)));
}

void TaskView::output(const agent::Output& output) {
  Json object{{"type", "output"}};
  object.update(to_json(output));
  console_.object(object);
}

void TaskView::notice(std::string_view text) {
  end_text_line();
  console_.object(Json{{"type", "notice"}, {"text", text}});
  console_.line(fmt::format("({})", one_line(text, 500)));
}

void TaskView::ended(const agent::TaskOutcome& outcome) {
  end_text_line();
  if (!outcome.outputs.empty()) console_.line("outputs:");
  for (const auto& output : outcome.outputs)
    console_.line(fmt::format("  {}{}{} ({})", one_line(output.host_path, 1000),
                              output.description.empty() ? "" : ": ",
                              one_line(output.description, line_limit), to_string(ByteSize{output.size})));
}

}  // namespace anchorhold::cli
