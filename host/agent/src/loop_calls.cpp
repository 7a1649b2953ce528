// The loop's half that carries out tool calls and records what happened.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "events/event.h"
#include "loop.h"
#include "schema.h"
#include "text.h"

namespace anchorhold::agent {
namespace {

// Of a result, for the model: a twentieth of its window, within reason.
std::size_t result_cap(const ModelLimits& limits) {
  return std::clamp<std::size_t>(limits.context_tokens * 4 / 20, 2048, 24 * 1024);
}

constexpr std::uint64_t max_stored_output_bytes = std::uint64_t{4} << 30;  // of one task

std::vector<std::string> names_of(const ToolSet& tools) {
  std::vector<std::string> names;
  for (const auto& tool : tools) names.push_back(tool->spec().name);
  return names;
}

}  // namespace

// A call in flight when the last host died is interrupted already (begin()); those not begun are begun now.
TaskRun::Step TaskRun::run_calls(std::vector<StoredCall>& calls) {
  for (StoredCall& stored : calls) {
    if (stored.state == StoredCall::State::pending) {
      if (auto end = ANCHORHOLD_TRY(run_call(stored))) return end;
    }
  }
  Message results{Role::user, {}};
  for (const StoredCall& stored : calls)
    results.blocks.push_back(
        ToolResultBlock{stored.call.id, stored.outcome.text, stored.outcome.verdict != ToolVerdict::ok});
  ANCHORHOLD_CHECK(store_.append_user(results));
  messages_.push_back(std::move(results));
  return std::nullopt;
}

TaskRun::Step TaskRun::run_call(StoredCall& stored) {
  if (switch_->source.stop_requested()) return interrupted_outcome();
  const ToolCall& call = stored.call;
  if (auto recorded = record_call(call); !recorded)
    return outcome(TaskEnd::failed,
                   "the event log cannot be written, so no tool may be used: " + recorded.error().message,
                   recorded.error().hint);
  ANCHORHOLD_CHECK(store_.call_running(call.number));
  parts_.observer.tool_began(call);
  const TaskSpec& spec = store_.spec();
  std::uint64_t left =
      max_stored_output_bytes - std::min(totals_.stored_output_bytes, max_stored_output_bytes);
  ToolContext context{
      parts_.workspace,
      parts_.files,
      spec.grants,
      spec.limits,
      parts_.ask_user,
      store_,
      jobs_,
      call.number,
      switch_->source.get_token(),
      result_cap(parts_.provider.limits()),
      left,
      store_.output_file(call.number),
      [&](OutputStream stream, std::string_view bytes) { parts_.observer.tool_output(call, stream, bytes); },
      {},
      0,
      parts_.web};
  auto began = parts_.clock.monotonic();
  stored.outcome = carry_out(call, find_tool(tools_, call.name), context);
  stored.outcome.duration =
      std::chrono::duration_cast<std::chrono::milliseconds>(parts_.clock.monotonic() - began);
  stored.state = StoredCall::State::done;
  totals_.stored_output_bytes += context.output_bytes;
  ANCHORHOLD_CHECK(store_.call_done(call.number, stored.outcome, context.output_bytes, context.effects));
  ANCHORHOLD_CHECK(spend_time());
  record_result(call, stored.outcome);
  parts_.observer.tool_ended(call, stored.outcome);
  if (context.effects.plan) parts_.observer.plan(*context.effects.plan);
  if (context.effects.delivered) parts_.observer.output(*context.effects.delivered);
  return std::nullopt;
}

ToolOutcome TaskRun::carry_out(const ToolCall& call, const Tool* tool, ToolContext& context) {
  if (!tool)
    return tool_error(fmt::format("there is no tool \"{}\"; there are: {}", one_line(call.name),
                                  fmt::join(names_of(tools_), ", ")));
  auto is_call = [&](const Block& block) {
    const auto* use = std::get_if<ToolUseBlock>(&block);
    return use && use->id == call.id && use->malformed;
  };
  auto input = parse_json(call.input);
  const auto& blocks = messages_.back().blocks;
  bool malformed = std::any_of(blocks.begin(), blocks.end(), is_call);
  if (malformed && input && input->is_object())
    return tool_error(
        "the call was cut off at the output limit, so it was not carried out: make it again, with shorter "
        "arguments");
  if (!input)
    return tool_error(
        fmt::format("the arguments are not valid JSON, so nothing was done: {}", input.error().message));
  if (!input->is_object()) return tool_error("the arguments are not a JSON object, so nothing was done");
  auto schema = parse_json(tool->spec().input_schema);
  if (!schema) return tool_error(schema.error());
  if (auto wrong = mismatch(*schema, *input)) return tool_error(*wrong + "; nothing was done");
  return tool->run(*input, context);
}

Status TaskRun::record_call(const ToolCall& call) {
  if (!parts_.events) return {};
  events::Event event(events::tool_call);
  event.set(store_.id())
      .set("gen_ai.tool.name", call.name)
      .set("gen_ai.tool.call.id", call.id)
      .set("tool.call.number", call.number);
  event.set_content(events::ContentCategory::arguments, "gen_ai.tool.call.arguments", call.input);
  return parts_.events->record(std::move(event));
}

void TaskRun::record_result(const ToolCall& call, const ToolOutcome& outcome) {
  if (!parts_.events) return;
  events::Event event(events::tool_result);
  event.set(store_.id())
      .set("gen_ai.tool.name", call.name)
      .set("gen_ai.tool.call.id", call.id)
      .set("tool.call.number", call.number);
  event.set("tool.verdict", to_string(outcome.verdict))
      .set("duration_ms", std::int64_t{outcome.duration.count()});
  event.set_content(events::ContentCategory::results, "gen_ai.tool.call.result", outcome.text);
  if (outcome.verdict != ToolVerdict::ok) event.set_severity(events::Severity::warn);
  if (auto recorded = parts_.events->record(std::move(event)); !recorded)
    parts_.observer.notice("The event log could not be written: " + recorded.error().message);
}

// Attributes: OpenTelemetry semantic conventions for generative AI.
void TaskRun::record_turn(const Turn& turn) {
  if (!parts_.events || turn.stop_reason == StopReason::script_end) return;
  events::Event event(events::model_call);
  event.set(store_.id())
      .set("gen_ai.operation.name", "chat")
      .set("gen_ai.provider.name", parts_.provider.name());
  event.set("gen_ai.conversation.id", store_.id().value())
      .set("gen_ai.request.model", parts_.provider.model());
  event.set("gen_ai.response.model", turn.model);
  event.set("gen_ai.response.finish_reasons", std::vector<std::string>{turn.stop_text});
  event.set("gen_ai.usage.input_tokens",
            turn.usage.input_tokens + turn.usage.cache_read_tokens + turn.usage.cache_write_tokens);
  event.set("gen_ai.usage.output_tokens", turn.usage.output_tokens);
  if (auto recorded = parts_.events->record(std::move(event)); !recorded)
    parts_.observer.notice("The event log could not be written: " + recorded.error().message);
}

}  // namespace anchorhold::agent
