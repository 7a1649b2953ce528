#include <fmt/format.h>

#include "captured_output.h"
#include "text.h"
#include "tool.h"

namespace anchorhold::agent {
namespace {

constexpr std::uint64_t default_timeout_seconds = 300;
constexpr std::uint64_t max_timeout_seconds = 24 * 3600;
constexpr std::uint64_t max_wait_seconds = 300;

// How a command ended, for the model.
std::string told(const ShellEnd& end, std::chrono::milliseconds limit) {
  switch (end.cause) {
    case ShellEnd::Cause::exited:
      return fmt::format("exit status {}", end.code);
    case ShellEnd::Cause::signalled:
      return fmt::format("ended by signal {}", end.signal);
    case ShellEnd::Cause::time_limit:
      return fmt::format("killed: it ran longer than its time limit of {}", anchorhold::to_string(limit));
    case ShellEnd::Cause::out_of_memory:
      return "killed: out of memory";
    case ShellEnd::Cause::killed:
      return end.detail.empty() ? std::string("killed on request") : fmt::format("killed: {}", end.detail);
    case ShellEnd::Cause::guest_lost:
      return fmt::format("the workspace was lost while it ran: {}", end.detail);
    case ShellEnd::Cause::unavailable:
      return fmt::format("workspace unavailable: {}", end.detail);
    case ShellEnd::Cause::refused:
      return fmt::format("could not be started: {}", end.detail);
  }
  return "ended";
}

bool good(const ShellEnd& end) {
  return end.cause == ShellEnd::Cause::exited && end.code == 0;
}
bool never_ran(const ShellEnd& end) {
  return end.cause == ShellEnd::Cause::unavailable || end.cause == ShellEnd::Cause::refused;
}

ToolOutcome outcome_of(const ShellEnd& end, std::string output, std::chrono::milliseconds limit) {
  std::string how = told(end, limit);
  if (never_ran(end)) return tool_error(std::move(how));
  if (!output.empty() && output.back() != '\n') output += '\n';
  ToolOutcome outcome{good(end) ? ToolVerdict::ok : ToolVerdict::error,
                      fmt::format("{}[{}]", output, how),
                      std::move(how),
                      {}};
  return outcome;
}

class Shell : public Tool {
 public:
  ToolSpec spec() const override {
    return {"shell",
            "Runs a command with bash in the workspace: a sealed Linux machine in which the granted folders "
            "appear below "
            "/mnt. Standard output and standard error come back together, followed by the exit status. Long "
            "output is cut "
            "in the middle and can be read in full with read_output. With background, the call returns at "
            "once with a "
            "job's name for shell_job.",
            R"({"type":"object","additionalProperties":false,"required":["command"],"properties":{
"command":{"type":"string","minLength":1,"maxLength":1000000,"description":"what bash runs"},
"working_directory":{"type":"string","description":"absolute path in the workspace"},
"timeout_seconds":{"type":"integer","minimum":1,"maximum":86400,"description":"killed with everything it started after this time; 300 if left out, none for a background job"},
"background":{"type":"boolean","description":"do not wait for the end"},
"tty":{"type":"boolean","description":"give it a terminal"}}})"};
  }

  std::string describe(const Json& input) const override {
    return one_line(string_or(input, "command")) + (bool_or(input, "background") ? " &" : "");
  }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    ShellCommand command;
    command.command = string_or(input, "command");
    if (command.command.find('\0') != std::string::npos)
      return tool_error("\"command\" contains a NUL character");
    command.working_directory = string_or(input, "working_directory");
    command.tty = bool_or(input, "tty");
    bool background = bool_or(input, "background");
    command.time_limit = std::chrono::seconds(std::min(
        uint_or(input, "timeout_seconds", background ? 0 : default_timeout_seconds), max_timeout_seconds));
    return background ? start(command, context) : run_to_end(command, context);
  }

 private:
  static ToolOutcome start(const ShellCommand& command, ToolContext& context) {
    if (context.jobs.size() >= context.limits.concurrent_jobs)
      return tool_error(fmt::format(
          "{} background jobs run already, more are not allowed: wait for one or kill one with shell_job",
          context.jobs.size()));
    auto started = context.workspace.start_job(command, context.stop);
    if (!started) return tool_error(started.error());
    if (started->id.empty()) return outcome_of(started->end, "", command.time_limit);
    context.jobs.insert(started->id);
    return tool_ok(fmt::format("started as the background job {}", started->id),
                   "background job " + started->id);
  }

  static ToolOutcome run_to_end(const ShellCommand& command, ToolContext& context) {
    CapturedOutput output(context.output_file, context.result_cap, context.stored_output_left);
    auto sink = [&](OutputStream stream, std::string_view bytes) {
      output.add(bytes);
      if (context.live) context.live(stream, bytes);
      return !context.stop.stop_requested();
    };
    auto end = context.workspace.run(command, sink, context.stop);
    context.output_bytes = output.stored();
    if (!end) return tool_error(end.error());
    auto outcome = outcome_of(*end, output.text(context.call_number), command.time_limit);
    if (end->cause == ShellEnd::Cause::killed && context.stop.stop_requested())
      outcome.verdict = ToolVerdict::interrupted;
    return outcome;
  }
};

class ShellJob : public Tool {
 public:
  ToolSpec spec() const override {
    return {"shell_job",
            "Looks at or kills a background job that shell started. poll returns new output from the offset "
            "on, the offset to "
            "continue from, and how the job ended if it has.",
            R"({"type":"object","additionalProperties":false,"required":["job","action"],"properties":{
"job":{"type":"string","minLength":1,"maxLength":200},
"action":{"type":"string","enum":["poll","kill"]},
"offset":{"type":"integer","minimum":0,"description":"for poll: read output from here; 0 if left out"},
"wait_seconds":{"type":"integer","minimum":0,"maximum":300,"description":"for poll: wait this long for news"}}})"};
  }

  std::string describe(const Json& input) const override {
    return one_line(string_or(input, "action") + " " + string_or(input, "job"));
  }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    JobId id = string_or(input, "job");
    if (string_or(input, "action") == "kill") {
      if (auto killed = context.workspace.kill_job(id); !killed)
        return unknown_or(killed.error(), id, context);
      context.jobs.erase(id);
      return tool_ok(fmt::format("the job {} is killed", id), "killed");
    }
    auto wait = std::chrono::seconds(std::min(uint_or(input, "wait_seconds"), max_wait_seconds));
    auto state =
        context.workspace.poll_job(id, uint_or(input, "offset"), context.result_cap, wait, context.stop);
    if (!state) return unknown_or(state.error(), id, context);
    std::string text = clean_utf8(state->output);
    if (state->lost > 0)
      text = fmt::format("[{} bytes before this are no longer kept]\n{}", grouped(state->lost), text);
    if (!text.empty() && text.back() != '\n') text += '\n';
    if (state->running)
      return tool_ok(fmt::format("{}[still running; next offset {}]", text, state->next_offset),
                     "still running");
    context.jobs.erase(id);
    std::string how = told(state->end, std::chrono::milliseconds(0));
    text += fmt::format("[{}; next offset {}]", how, state->next_offset);
    return {good(state->end) ? ToolVerdict::ok : ToolVerdict::error, std::move(text), std::move(how), {}};
  }

 private:
  static ToolOutcome unknown_or(const Error& error, const JobId& id, ToolContext& context) {
    if (error.code != ErrorCode::not_found) return tool_error(error);
    context.jobs.erase(id);
    return tool_error(fmt::format(
        "there is no background job {} in this workspace: jobs end with the workspace they were started in",
        id));
  }
};

class ReadOutput : public Tool {
 public:
  ToolSpec spec() const override {
    return {"read_output",
            "Reads part of the full output of an earlier tool call, by the call's number as given where the "
            "output was cut.",
            R"({"type":"object","additionalProperties":false,"required":["call"],"properties":{
"call":{"type":"integer","minimum":1},
"offset":{"type":"integer","minimum":0,"description":"in bytes; 0 if left out"},
"length":{"type":"integer","minimum":1,"description":"in bytes"}}})"};
  }

  std::string describe(const Json& input) const override {
    return fmt::format("call {} from {}", uint_or(input, "call"), uint_or(input, "offset"));
  }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    std::uint64_t offset = uint_or(input, "offset");
    std::size_t length =
        std::min<std::uint64_t>(uint_or(input, "length", context.result_cap), context.result_cap);
    auto text = context.store.read_output(uint_or(input, "call"), offset, length);
    if (!text) return tool_error(text.error());
    if (text->empty())
      return tool_ok("[nothing from this offset on: the output ends before it]", "end of the output");
    return tool_ok(fmt::format("{}\n[next offset {}]", clean_utf8(*text), offset + text->size()),
                   counted(text->size(), "byte", "bytes"));
  }
};

}  // namespace

void add_shell_tools(ToolSet& tools) {
  tools.push_back(std::make_unique<Shell>());
  tools.push_back(std::make_unique<ShellJob>());
  tools.push_back(std::make_unique<ReadOutput>());
}

}  // namespace anchorhold::agent
