#include <fmt/format.h>

#include "agent/task_store.h"
#include "anthropic.h"
#include "base/files.h"
#include "fakes/agent_files.h"
#include "fakes/agent_workspace.h"
#include "http.h"
#include "wire_server.h"

namespace anchorhold::agent {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

class AnthropicWire : public WireTest {
 protected:
  std::unique_ptr<Provider> provider(const std::string& model, unsigned split = 0) {
    auto made = AnthropicProvider::create(model, url(split), Secret(std::string(test_key)), 0, retries);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  Result<Turn> ask(const std::string& model, unsigned split = 0) {
    heard = {};
    return provider(model, split)->stream(request, heard, {});
  }
  HeardTurn heard;
};

TEST_F(AnthropicWire, text_and_usage_whole_and_in_pieces) {
  for (unsigned split : {0u, 1u, 2u, 7u}) {
    auto turn = ask("text", split);
    ASSERT_TRUE(turn) << turn.error().message;
    EXPECT_EQ(text_of(turn->blocks), "Hello wörld 🌍!");
    EXPECT_EQ(heard.text, "Hello wörld 🌍!");
    EXPECT_EQ(turn->stop_reason, StopReason::end_turn);
    EXPECT_EQ(turn->usage.input_tokens, 25u);
    EXPECT_EQ(turn->usage.output_tokens, 15u);
    EXPECT_EQ(turn->usage.cache_write_tokens, 7u);
    EXPECT_EQ(turn->usage.cache_read_tokens, 5u);
    EXPECT_EQ(turn->model, "text");
  }
}

TEST_F(AnthropicWire, the_request_is_what_the_service_takes) {
  ASSERT_TRUE(ask("text#request"));
  Json got = seen("text#request");
  EXPECT_EQ(got["headers"]["x-api-key"], test_key);
  EXPECT_EQ(got["headers"]["anthropic-version"], "2023-06-01");
  EXPECT_EQ(got["body"]["max_tokens"], 100);
  EXPECT_EQ(got["body"]["system"][0]["cache_control"]["type"], "ephemeral");
  EXPECT_EQ(got["body"]["messages"][0]["content"][0]["cache_control"]["type"], "ephemeral");
  EXPECT_EQ(got["body"]["tools"][0]["name"], "shell");
}

TEST_F(AnthropicWire, what_we_carry_goes_back_unchanged) {
  for (const char* scenario : {"thinking", "redacted", "unknown", "cited"}) {
    auto turn = ask(scenario);
    ASSERT_TRUE(turn) << scenario << ": " << turn.error().message;
    std::string model = fmt::format("text#{}", scenario);
    TurnRequest next = request;
    next.messages.push_back({Role::assistant, turn->blocks});
    next.messages.push_back({Role::user, {TextBlock{"go on", {}}}});
    ASSERT_TRUE(provider(model)->stream(next, heard, {})) << scenario;
    Json content = seen(model)["body"]["messages"][1]["content"];
    if (std::string_view(scenario) == "thinking") {
      EXPECT_EQ(content[0], (Json{{"type", "thinking"},
                                  {"thinking", "Let me see… 🧮"},
                                  {"signature", "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk="}}));
    } else if (std::string_view(scenario) == "redacted") {
      EXPECT_EQ(content[0], (Json{{"type", "redacted_thinking"}, {"data", "EmwKAhgBEgy3va3pzix"}}));
    } else if (std::string_view(scenario) == "unknown") {
      EXPECT_EQ(content[0], (Json{{"type", "hologram"}, {"beam", "zzap"}, {"power", 3}}));
      EXPECT_EQ(content[1]["input"], (Json{{"query", "x"}}));
    } else {
      EXPECT_EQ(content[0]["citations"][0]["cited_text"], "a");
      EXPECT_EQ(content[0]["text"], "as said");
    }
  }
}

TEST_F(AnthropicWire, tool_calls_and_malformed_arguments) {
  for (unsigned split : {0u, 1u}) {
    auto turn = ask("tools", split);
    ASSERT_TRUE(turn);
    ASSERT_THAT(turn->blocks, SizeIs(3));
    const auto& shell = std::get<ToolUseBlock>(turn->blocks[1]);
    EXPECT_EQ(shell.id, "toolu_1");
    EXPECT_EQ(*parse_json(shell.input), (Json{{"command", "print é"}}));
    EXPECT_EQ(std::get<ToolUseBlock>(turn->blocks[2]).input, "{}");
    EXPECT_THAT(heard.tools, ElementsAre("shell", "list"));
    EXPECT_EQ(heard.blocks, 3u);
  }
  auto broken = ask("malformed");
  ASSERT_TRUE(broken);
  EXPECT_TRUE(std::get<ToolUseBlock>(broken->blocks[0]).malformed);
  // The service wants an object even so.
  TurnRequest next = request;
  next.messages.push_back({Role::assistant, broken->blocks});
  next.messages.push_back({Role::user, {ToolResultBlock{"toolu_1", "not JSON", true}}});
  ASSERT_TRUE(provider("text#malformed")->stream(next, heard, {}));
  EXPECT_EQ(seen("text#malformed")["body"]["messages"][1]["content"][0]["input"],
            (Json{{"INVALID_JSON", "{\"command\": \"pri"}}));
}

TEST_F(AnthropicWire, every_stop_reason) {
  const std::pair<const char*, StopReason> reasons[] = {
      {"end_turn", StopReason::end_turn},
      {"max_tokens", StopReason::max_tokens},
      {"stop_sequence", StopReason::stop_sequence},
      {"pause_turn", StopReason::pause_turn},
      {"refusal", StopReason::refusal},
      {"model_context_window_exceeded", StopReason::context_exceeded},
      {"something_new", StopReason::other}};
  for (const auto& [word, reason] : reasons) {
    auto turn = ask(fmt::format("stop-{}", word));
    ASSERT_TRUE(turn) << word;
    EXPECT_EQ(turn->stop_reason, reason) << word;
    EXPECT_EQ(turn->stop_text, word);
  }
  EXPECT_EQ(ask("stop-refusal")->stop_detail, "It looks like malware.");
}

TEST_F(AnthropicWire, overload_and_rate_limits_are_waited_out_as_the_server_says) {
  for (const char* scenario : {"rate-limit-once", "overloaded-once", "server-error-once"}) {
    auto turn = ask(scenario);
    ASSERT_TRUE(turn) << scenario << ": " << turn.error().message;
    EXPECT_THAT(heard.delays, ElementsAre(std::chrono::milliseconds(20))) << scenario;
    EXPECT_EQ(seen(scenario)["count"], 2);
  }
}

TEST_F(AnthropicWire, what_cannot_be_mended_is_not_tried_again) {
  const std::pair<const char*, ErrorCode> cases[] = {{"told-not-to-retry", ErrorCode::unavailable},
                                                     {"bad-key", ErrorCode::permission_denied},
                                                     {"wait-an-hour", ErrorCode::resource_exhausted},
                                                     {"final-error-midway", ErrorCode::failed_precondition},
                                                     {"garbage", ErrorCode::data_loss},
                                                     {"no-such-scenario", ErrorCode::not_found}};
  for (const auto& [scenario, code] : cases) {
    auto turn = ask(scenario);
    ASSERT_FALSE(turn) << scenario;
    EXPECT_EQ(turn.error().code, code) << turn.error().message;
    EXPECT_EQ(seen(scenario)["count"], 1) << scenario;
    EXPECT_THAT(turn.error().message, AllOf(HasSubstr("127.0.0.1"), Not(HasSubstr(test_key))));
  }
}

TEST_F(AnthropicWire, tries_are_bounded) {
  for (const char* scenario : {"always-overloaded", "always-drops"}) {
    auto turn = ask(scenario);
    ASSERT_FALSE(turn);
    EXPECT_EQ(turn.error().code, ErrorCode::unavailable);
    EXPECT_EQ(seen(scenario)["count"], 6) << scenario;
  }
}

TEST_F(AnthropicWire, an_error_after_200_or_a_broken_stream_starts_the_turn_again_and_says_so) {
  for (const char* scenario : {"error-at-once", "error-midway", "drop-midway"}) {
    auto turn = ask(scenario);
    ASSERT_TRUE(turn) << scenario << ": " << turn.error().message;
    EXPECT_THAT(heard.restarts, SizeIs(1)) << scenario;
    EXPECT_EQ(heard.text, "Hello wörld 🌍!") << scenario;
    EXPECT_EQ(text_of(turn->blocks), "Hello wörld 🌍!") << scenario;
  }
}

TEST_F(AnthropicWire, a_turn_that_is_whole_survives_the_end_of_the_connection) {
  auto turn = ask("drop-before-stop");
  ASSERT_TRUE(turn) << turn.error().message;
  EXPECT_EQ(text_of(turn->blocks), "all of it");
  EXPECT_THAT(heard.restarts, IsEmpty());
}

TEST_F(AnthropicWire, a_full_window_is_a_turn_of_its_own_kind) {
  auto turn = ask("too-long");
  ASSERT_TRUE(turn) << turn.error().message;
  EXPECT_EQ(turn->stop_reason, StopReason::context_exceeded);
}

TEST_F(AnthropicWire, a_stop_ends_a_silent_stream_at_once) {
  std::stop_source stop;
  heard.on_text = [&] { stop.request_stop(); };
  auto turn = provider("no-end")->stream(request, heard, stop.get_token());
  ASSERT_FALSE(turn);
  EXPECT_EQ(turn.error().code, ErrorCode::cancelled);
}

TEST_F(AnthropicWire, a_silent_server_is_given_up) {
  HttpRequest silent;
  silent.url = url() + "/v1/messages";
  silent.headers = {"anthropic-version: 2023-06-01", "x-api-key: k"};
  silent.body =
      R"({"model":"no-end","max_tokens":1,"stream":true,"messages":[{"role":"user","content":"x"}]})";
  silent.idle_limit = std::chrono::milliseconds(50);
  auto head = http_post(silent, [](const HttpHead&, std::string_view) -> Status { return {}; }, {});
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().code, ErrorCode::deadline_exceeded);
}

TEST_F(AnthropicWire, nobody_listening_is_an_error_that_names_the_server) {
  auto made = AnthropicProvider::create(
      "text", "http://127.0.0.1:1", Secret(std::string(test_key)), 0,
      {1, std::chrono::milliseconds(1), std::chrono::milliseconds(1), std::chrono::minutes(1)});
  auto turn = (*made)->stream(request, heard, {});
  ASSERT_FALSE(turn);
  EXPECT_EQ(turn.error().code, ErrorCode::unavailable);
  EXPECT_THAT(heard.restarts, SizeIs(1));
  EXPECT_THAT(turn.error().message, StartsWith("the model's server at 127.0.0.1: Failed to connect"));
}

TEST_F(AnthropicWire, a_whole_task_over_the_wire) {
  auto directory = TemporaryDirectory::create();
  SystemClock clock;
  FakeClock timer_clock;
  ManualExecutor timer(timer_clock);
  auto store = TaskStore::open(directory->path() / "tasks");
  TaskSpec spec;
  spec.prompt = "Ask the guest";
  auto task = store->create(spec, clock);
  ASSERT_TRUE(task);
  fakes::FakeWorkspace workspace;
  fakes::FakeFiles files;
  TaskObserver nobody;
  auto model = provider("agent", 1);
  TaskParts parts{*model, workspace, files, nobody, clock, timer, {}, WarmUp::at_first_sign, nullptr};
  auto outcome = run_task(*task, parts, {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->end, TaskEnd::completed) << outcome->reason;
  EXPECT_EQ(outcome->answer, "It said: from the guest\n[exit status 0]");
  Json sent = seen("agent")["body"]["messages"];
  EXPECT_EQ(sent[1]["content"][0]["type"], "thinking");
  EXPECT_EQ(sent[2]["content"][0]["type"], "tool_result");
}

}  // namespace
}  // namespace anchorhold::agent
