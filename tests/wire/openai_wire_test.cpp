#include <fmt/format.h>

#include "agent/task_store.h"
#include "base/files.h"
#include "fakes/agent_files.h"
#include "fakes/agent_workspace.h"
#include "openai.h"
#include "wire_server.h"

namespace anchorhold::agent {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class OpenAiWire : public WireTest {
 protected:
  std::unique_ptr<Provider> provider(const std::string& model, unsigned split = 0) {
    auto made = OpenAiProvider::create(model, url(split), Secret(std::string(test_key)), 0, retries);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  Result<Turn> ask(const std::string& model, unsigned split = 0) {
    heard = {};
    return provider(model, split)->stream(request, heard, {});
  }
  // The commands of the turn's shell calls.
  std::vector<std::string> commands(const Turn& turn) {
    std::vector<std::string> found;
    for (const auto& block : turn.blocks) {
      const auto* use = std::get_if<ToolUseBlock>(&block);
      if (use && !use->malformed) found.push_back(string_or(*parse_json(use->input), "command"));
    }
    return found;
  }
  HeardTurn heard;
};

TEST_F(OpenAiWire, text_and_usage_whole_and_in_pieces) {
  for (unsigned split : {0u, 1u, 2u, 7u}) {
    auto turn = ask("text", split);
    ASSERT_TRUE(turn) << turn.error().message;
    EXPECT_EQ(text_of(turn->blocks), "Hello wörld 🌍!");
    EXPECT_EQ(heard.text, "Hello wörld 🌍!");
    EXPECT_EQ(turn->stop_reason, StopReason::end_turn);
    EXPECT_EQ(turn->usage.input_tokens, 20u);
    EXPECT_EQ(turn->usage.cache_read_tokens, 10u);
    EXPECT_EQ(turn->usage.output_tokens, 12u);
  }
}

TEST_F(OpenAiWire, the_request_is_what_the_service_takes) {
  ASSERT_TRUE(ask("text#request"));
  Json got = seen("text#request");
  EXPECT_EQ(got["headers"]["authorization"], "Bearer " + test_key);
  EXPECT_EQ(got["body"]["messages"][0], (Json{{"role", "system"}, {"content", "Be good."}}));
  EXPECT_EQ(got["body"]["tools"][0]["function"]["name"], "shell");
  EXPECT_EQ(got["body"]["max_tokens"], 100);
}

TEST_F(OpenAiWire, a_server_without_keys_gets_none) {
  auto made = OpenAiProvider::create("text#keyless", url(), Secret(), 0, retries);
  ASSERT_TRUE((*made)->stream(request, heard, {}));
  EXPECT_FALSE(seen("text#keyless")["headers"].contains("authorization"));
}

TEST_F(OpenAiWire, tool_calls_in_every_form) {
  for (unsigned split : {0u, 1u}) {
    auto turn = ask("tools", split);
    ASSERT_TRUE(turn);
    EXPECT_THAT(commands(*turn), ElementsAre("print é", ""));
    EXPECT_EQ(turn->stop_reason, StopReason::tool_use);
    EXPECT_EQ(std::get<ToolUseBlock>(turn->blocks[1]).id, "call_a");
    EXPECT_THAT(heard.tools, ElementsAre("shell", "list"));
  }
  for (const char* scenario : {"no-ids", "same-index", "no-index-no-ids"}) {
    auto turn = ask(scenario);
    ASSERT_TRUE(turn) << scenario;
    EXPECT_THAT(commands(*turn), ElementsAre("a", "b")) << scenario;
    const auto& first = std::get<ToolUseBlock>(turn->blocks[0]);
    const auto& second = std::get<ToolUseBlock>(turn->blocks[1]);
    EXPECT_FALSE(first.id.empty());
    EXPECT_NE(first.id, second.id);
  }
  EXPECT_THAT(commands(*ask("object-arguments")), ElementsAre("a"));
  EXPECT_THAT(commands(*ask("double-encoded")), ElementsAre("a"));
  auto broken = ask("malformed");
  ASSERT_TRUE(broken);
  EXPECT_TRUE(std::get<ToolUseBlock>(broken->blocks[0]).malformed);
}

TEST_F(OpenAiWire, ends_of_every_kind) {
  const std::pair<const char*, StopReason> cases[] = {{"stop-stop", StopReason::end_turn},
                                                      {"stop-length", StopReason::max_tokens},
                                                      {"stop-content_filter", StopReason::refusal},
                                                      {"stop-something_new", StopReason::other},
                                                      {"no-done", StopReason::end_turn},
                                                      {"no-finish", StopReason::end_turn},
                                                      {"whole", StopReason::end_turn},
                                                      {"unknown", StopReason::end_turn},
                                                      {"too-long", StopReason::context_exceeded}};
  for (const auto& [scenario, reason] : cases) {
    auto turn = ask(scenario);
    ASSERT_TRUE(turn) << scenario << ": " << turn.error().message;
    EXPECT_EQ(turn->stop_reason, reason) << scenario;
  }
  EXPECT_EQ(text_of(ask("whole")->blocks), "not streamed");
}

TEST_F(OpenAiWire, reasoning_is_heard_and_goes_back_under_its_name) {
  auto turn = ask("reasoning");
  ASSERT_TRUE(turn);
  EXPECT_EQ(heard.thinking, "hm hm");
  EXPECT_EQ(text_of(turn->blocks), "42");
  TurnRequest next = request;
  next.messages.push_back({Role::assistant, turn->blocks});
  next.messages.push_back({Role::user, {TextBlock{"go on", {}}}});
  ASSERT_TRUE(provider("text#reasoning")->stream(next, heard, {}));
  EXPECT_EQ(seen("text#reasoning")["body"]["messages"][2]["reasoning_content"], "hm hm");
}

TEST_F(OpenAiWire, what_passes_is_tried_again_and_what_does_not_is_not) {
  for (const char* scenario : {"rate-limit-once", "server-error-once", "error-midway", "drop-midway"}) {
    auto turn = ask(scenario);
    ASSERT_TRUE(turn) << scenario << ": " << turn.error().message;
    EXPECT_THAT(heard.restarts, SizeIs(1)) << scenario;
    EXPECT_EQ(heard.text, "Hello wörld 🌍!") << scenario;
  }
  auto refused = ask("bad-key");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::permission_denied);
  EXPECT_THAT(refused.error().message, Not(HasSubstr(test_key)));
  EXPECT_EQ(seen("bad-key")["count"], 1);
}

TEST_F(OpenAiWire, a_stop_ends_a_silent_stream_at_once) {
  std::stop_source stop;
  heard.on_text = [&] { stop.request_stop(); };
  auto turn = provider("no-end")->stream(request, heard, stop.get_token());
  ASSERT_FALSE(turn);
  EXPECT_EQ(turn.error().code, ErrorCode::cancelled);
}

TEST_F(OpenAiWire, a_whole_task_over_the_wire) {
  auto directory = TemporaryDirectory::create();
  SystemClock clock;
  FakeClock timer_clock;
  ManualExecutor timer(timer_clock);
  auto store = TaskStore::open(directory->path() / "tasks");
  TaskSpec spec;
  spec.prompt = "Ask the guest";
  auto task = store->create(spec, clock);
  fakes::FakeWorkspace workspace;
  fakes::FakeFiles files;
  TaskObserver nobody;
  auto model = provider("agent", 1);
  TaskParts parts{*model, workspace, files, nobody, clock, timer, {}, WarmUp::at_first_sign, nullptr};
  auto outcome = run_task(*task, parts, {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->end, TaskEnd::completed) << outcome->reason;
  EXPECT_EQ(outcome->answer, "It said: from the guest\n[exit status 0]");
  EXPECT_EQ(seen("agent")["body"]["messages"][3]["role"], "tool");
}

}  // namespace
}  // namespace anchorhold::agent
