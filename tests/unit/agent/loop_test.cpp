#include <thread>

#include "loop_fixture.h"

namespace anchorhold::agent {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

std::unique_ptr<ScriptedProvider> script(std::string_view text) {
  auto provider = ScriptedProvider::parse(text, "test.json");
  EXPECT_TRUE(provider) << provider.error().message;
  return std::move(*provider);
}

TEST_F(LoopTest, runs_a_script_with_tools_and_the_last_result_to_its_end) {
  auto provider = script(R"({"turns":[
    {"content":[{"type":"text","text":"I begin."},{"type":"tool_use","name":"plan","input":{"items":[{"text":"Read","state":"in_progress"},{"text":"Write"}]}}]},
    {"content":[{"type":"tool_use","name":"shell","input":{"command":"print hello;warn oops;exit 3"}}]},
    {"content":[{"type":"tool_use","name":"write_file","input":{"path":"/mnt/report/out.md","content":"It said: {{last_result}}"}}]},
    {"content":[{"type":"tool_use","name":"deliver","input":{"path":"/mnt/report/out.md","description":"the report"}}]},
    {"content":[{"type":"text","text":"All done."}]}]})");
  auto outcome = run(*provider);
  EXPECT_EQ(outcome.end, TaskEnd::completed) << outcome.reason;
  EXPECT_EQ(outcome.answer, "All done.");
  EXPECT_EQ(outcome.turns, 5u);
  EXPECT_EQ(files_.get("/mnt/report/out.md"), "It said: hello\noops\n[exit status 3]");
  ASSERT_THAT(outcome.outputs, SizeIs(1));
  EXPECT_EQ(outcome.outputs[0].host_path, "/home/a/report/out.md");
  EXPECT_EQ(outcome.outputs[0].description, "the report");
  EXPECT_EQ(observer_.said, "I begin.All done.");
  EXPECT_EQ(observer_.out, "hello\n");
  EXPECT_EQ(observer_.err, "oops\n");
  ASSERT_THAT(observer_.plans, SizeIs(1));
  EXPECT_EQ(observer_.plans[0][0].state, PlanItem::State::in_progress);
  ASSERT_THAT(observer_.outcomes, SizeIs(4));
  EXPECT_EQ(observer_.outcomes[1].verdict, ToolVerdict::error);
  EXPECT_EQ(observer_.outcomes[1].summary, "exit status 3");
  EXPECT_EQ(observer_.began[1].summary, "shell: print hello;warn oops;exit 3");
  EXPECT_EQ(task_->summary()->state, TaskState::completed);
}

TEST_F(LoopTest, a_script_that_runs_out_after_a_tool_completes) {
  auto provider = script(R"({"turns":[{"content":[{"type":"tool_use","name":"list","input":{}}]}]})");
  EXPECT_EQ(run(*provider).end, TaskEnd::completed);
  EXPECT_THAT(observer_.outcomes[0].text, AllOf(HasSubstr("report/"), HasSubstr("source/")));
}

TEST_F(LoopTest, without_a_guest_the_task_goes_on_and_shell_says_why) {
  workspace_.set_unavailable("no QEMU: install qemu-system-x86");
  FixedProvider provider({tool_turn({{"shell", R"({"command":"print x"})"}}),
                          tool_turn({{"write_file", R"({"path":"/mnt/report/a","content":"b"})"}}),
                          text_turn("done")});
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  EXPECT_EQ(observer_.outcomes[0].text, "workspace unavailable: no QEMU: install qemu-system-x86");
  EXPECT_EQ(observer_.outcomes[0].verdict, ToolVerdict::error);
  EXPECT_EQ(files_.get("/mnt/report/a"), "b");
}

TEST_F(LoopTest, the_guest_is_warmed_up_when_shell_is_named_and_not_before) {
  FixedProvider quiet({text_turn("nothing to run")});
  run(quiet);
  EXPECT_EQ(workspace_.warm_ups(), 0);
  task_.reset();
  FixedProvider loud({tool_turn({{"shell", R"({"command":"print x"})"}}), text_turn("done")});
  run(loud);
  EXPECT_EQ(workspace_.warm_ups(), 1);
  task_.reset();
  warm_up_ = WarmUp::at_start;
  FixedProvider early({text_turn("nothing to run")});
  run(early);
  EXPECT_EQ(workspace_.warm_ups(), 2);
}

TEST_F(LoopTest, wrong_calls_are_errors_for_the_model_and_the_loop_goes_on) {
  Turn broken = tool_turn({{"shell", "{\"command\": \"pri"}});
  std::get<ToolUseBlock>(broken.blocks[0]).malformed = true;
  FixedProvider provider({tool_turn({{"fly", "{}"}}), std::move(broken), tool_turn({{"shell", "[]"}}),
                          tool_turn({{"shell", R"({"cmd":"ls"})"}}),
                          tool_turn({{"shell", R"({"command":5})"}}),
                          tool_turn({{"shell", R"({"command":"print x","speed":1})"}}), text_turn("done")});
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  ASSERT_THAT(observer_.outcomes, SizeIs(6));
  EXPECT_THAT(observer_.outcomes[0].text,
              AllOf(HasSubstr("there is no tool \"fly\""), HasSubstr("read_file")));
  EXPECT_THAT(observer_.outcomes[1].text, HasSubstr("not valid JSON"));
  EXPECT_THAT(observer_.outcomes[2].text, HasSubstr("not a JSON object"));
  EXPECT_THAT(observer_.outcomes[3].text, HasSubstr("\"command\" is missing"));
  EXPECT_THAT(observer_.outcomes[4].text, HasSubstr("must be of type string"));
  EXPECT_THAT(observer_.outcomes[5].text,
              AllOf(HasSubstr("no argument \"speed\""), HasSubstr("timeout_seconds")));
  for (const auto& outcome : observer_.outcomes) EXPECT_EQ(outcome.verdict, ToolVerdict::error);
  EXPECT_THAT(workspace_.started(), IsEmpty());
}

TEST_F(LoopTest, a_call_cut_at_the_output_limit_is_not_run) {
  Turn cut = tool_turn({{"shell", "{}"}, {"shell", R"({"command":"print half"})"}});
  cut.stop_reason = StopReason::max_tokens;
  std::get<ToolUseBlock>(cut.blocks[0]).input = R"({"command":"print whole"})";
  FixedProvider provider({std::move(cut), text_turn("done")});
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  ASSERT_THAT(workspace_.started(), SizeIs(1));
  EXPECT_EQ(workspace_.started()[0].command, "print whole");
  EXPECT_THAT(observer_.outcomes[1].text, HasSubstr("cut off at the output limit"));
}

TEST_F(LoopTest, text_cut_at_the_output_limit_is_continued_but_not_for_ever) {
  FixedProvider provider({text_turn("one ", StopReason::max_tokens), text_turn("two")});
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  EXPECT_EQ(provider.requests[1].messages.size(), 3u);
  task_.reset();
  FixedProvider endless(std::vector<Result<Turn>>(10, text_turn("more", StopReason::max_tokens)));
  auto outcome = run(endless);
  EXPECT_EQ(outcome.end, TaskEnd::failed);
  EXPECT_THAT(outcome.reason, HasSubstr("cut off 5 times"));
}

TEST_F(LoopTest, a_paused_turn_is_sent_back_as_it_is) {
  Turn paused{{OpaqueBlock{"server_tool_use", R"({"type":"server_tool_use","id":"s1"})"}},
              StopReason::pause_turn,
              "pause_turn",
              "",
              {},
              ""};
  FixedProvider provider({std::move(paused), text_turn("found it")});
  auto outcome = run(provider);
  EXPECT_EQ(outcome.end, TaskEnd::completed);
  ASSERT_THAT(provider.requests, SizeIs(2));
  EXPECT_EQ(provider.requests[1].messages.back().role, Role::assistant);
}

TEST_F(LoopTest, a_refusal_fails_the_task_and_is_not_kept) {
  FixedProvider provider({text_turn("I will not", StopReason::refusal)});
  auto outcome = run(provider);
  EXPECT_EQ(outcome.end, TaskEnd::failed);
  EXPECT_THAT(outcome.reason, HasSubstr("refused"));
  EXPECT_THAT(*task_->messages(), SizeIs(1));
}

TEST_F(LoopTest, an_unknown_stop_reason_with_tool_calls_still_runs_them) {
  Turn odd = tool_turn({{"shell", R"({"command":"print x"})"}});
  odd.stop_reason = StopReason::other;
  FixedProvider provider({std::move(odd), text_turn("done", StopReason::other)});
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  EXPECT_THAT(workspace_.started(), SizeIs(1));
}

TEST_F(LoopTest, limits_end_the_task_and_say_which) {
  std::vector<Result<Turn>> turns(10, tool_turn({{"list", "{}"}}));
  spec_.limits.turns = 3;
  FixedProvider many(turns);
  auto outcome = run(many);
  EXPECT_EQ(outcome.end, TaskEnd::limit);
  EXPECT_EQ(outcome.reason, "the limit of 3 turns is reached");
  EXPECT_EQ(outcome.turns, 3u);
  EXPECT_EQ(task_->summary()->state, TaskState::limit);

  task_.reset();
  spec_.limits = {};
  spec_.limits.tokens = 300;
  FixedProvider costly(turns);
  outcome = run(costly);
  EXPECT_EQ(outcome.end, TaskEnd::limit);
  EXPECT_EQ(outcome.reason, "the limit of 300 tokens is reached");

  task_.reset();
  spec_.limits = {};
  spec_.limits.wall_time = std::chrono::minutes(1);
  FixedProvider slow(turns);
  slow.on_stream = [&] { clock_.advance(std::chrono::seconds(25)); };
  outcome = run(slow);
  EXPECT_EQ(outcome.end, TaskEnd::limit);
  EXPECT_THAT(outcome.reason, StartsWith("the time limit of 1m"));
  EXPECT_EQ(slow.requests.size(), 3u);
}

TEST_F(LoopTest, the_time_limit_kills_a_running_command) {
  spec_.limits.wall_time = std::chrono::minutes(1);
  FixedProvider provider({tool_turn({{"shell", R"({"command":"print begun;wait"})"}})});
  make_task();
  TaskOutcome outcome;
  std::jthread task([&] { outcome = run(provider); });
  workspace_.await_waiting();
  timer_.advance(std::chrono::minutes(1));
  task.join();
  EXPECT_EQ(outcome.end, TaskEnd::limit);
  EXPECT_EQ(observer_.outcomes[0].verdict, ToolVerdict::interrupted);
}

TEST_F(LoopTest, a_stop_kills_the_running_command_and_the_task_can_be_resumed) {
  FixedProvider provider({tool_turn({{"shell", R"({"command":"print begun;wait"})"},
                                     {"shell", R"({"command":"print second"})"}}),
                          text_turn("done")});
  make_task();
  std::stop_source stop;
  TaskOutcome outcome;
  std::jthread task([&] { outcome = run(provider, stop.get_token()); });
  workspace_.await_waiting();
  stop.request_stop();
  task.join();
  EXPECT_EQ(outcome.end, TaskEnd::stopped);
  EXPECT_EQ(task_->summary()->state, TaskState::stopped);
  EXPECT_THAT(workspace_.started(), SizeIs(1));

  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  ASSERT_THAT(workspace_.started(), SizeIs(2));
  EXPECT_EQ(workspace_.started()[1].command, "print second");
  const auto& results = provider.requests[1].messages.back().blocks;
  EXPECT_THAT(std::get<ToolResultBlock>(results[0]).text,
              AllOf(HasSubstr("begun"), HasSubstr("killed on request")));
}

TEST_F(LoopTest, a_stop_before_the_first_turn_asks_nothing) {
  FixedProvider provider({text_turn("done")});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(run(provider, stop.get_token()).end, TaskEnd::stopped);
  EXPECT_THAT(provider.requests, IsEmpty());
}

TEST_F(LoopTest, a_failed_model_connection_fails_the_task_which_can_be_resumed) {
  FixedProvider provider({fail(ErrorCode::unavailable, "connecting to the model: refused", "Is it running?"),
                          text_turn("done")});
  auto outcome = run(provider);
  EXPECT_EQ(outcome.end, TaskEnd::failed);
  EXPECT_EQ(outcome.reason, "connecting to the model: refused");
  EXPECT_EQ(outcome.hint, "Is it running?");
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  EXPECT_THAT(observer_.ends, SizeIs(2));
}

TEST_F(LoopTest, background_jobs_are_polled_limited_and_killed_at_the_end) {
  spec_.limits.concurrent_jobs = 2;
  std::string wait = R"({"command":"print up;wait","background":true})";
  FixedProvider provider({tool_turn({{"shell", wait}, {"shell", wait}, {"shell", wait}}),
                          tool_turn({{"shell_job", R"({"job":"job1","action":"poll"})"},
                                     {"shell_job", R"({"job":"job1","action":"kill"})"},
                                     {"shell_job", R"({"job":"job1","action":"poll","offset":3})"},
                                     {"shell_job", R"({"job":"job9","action":"poll"})"}}),
                          text_turn("done")});
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  EXPECT_THAT(observer_.outcomes[2].text, HasSubstr("2 background jobs run already"));
  EXPECT_EQ(observer_.outcomes[3].text, "up\n[still running; next offset 3]");
  EXPECT_EQ(observer_.outcomes[4].verdict, ToolVerdict::ok);
  EXPECT_EQ(observer_.outcomes[5].text, "[killed on request; next offset 3]");
  EXPECT_THAT(observer_.outcomes[6].text, HasSubstr("no background job job9"));
  EXPECT_THAT(workspace_.killed_jobs(), ElementsAre("job1", "job2"));
}

TEST_F(LoopTest, every_call_is_an_event_before_it_runs_and_none_runs_without) {
  FixedProvider provider({tool_turn({{"shell", R"({"command":"print x"})"}}), text_turn("done")});
  run(provider);
  std::vector<std::string> names;
  for (const auto& event : events_.recorded) names.emplace_back(event.name().text);
  EXPECT_THAT(names, ElementsAre("gen_ai.client.inference.operation.details", "anchorhold.tool.call",
                                 "anchorhold.tool.result", "gen_ai.client.inference.operation.details"));
  task_.reset();
  events_.broken = true;
  FixedProvider again({tool_turn({{"shell", R"({"command":"print x"})"}}), text_turn("done")});
  auto outcome = run(again);
  EXPECT_EQ(outcome.end, TaskEnd::failed);
  EXPECT_THAT(outcome.reason, HasSubstr("event log"));
  EXPECT_THAT(workspace_.started(), SizeIs(1));
}

TEST_F(LoopTest, the_prompt_states_the_grants_that_are_in_force) {
  std::string closed = system_prompt(spec_.grants, {}, spec_.limits, false);
  EXPECT_THAT(closed, AllOf(HasSubstr("/mnt/report (the person knows it as /home/a/report): read and write"),
                            HasSubstr("/mnt/source (the person knows it as /home/a/source): read only"),
                            HasSubstr("has no network"), HasSubstr("Nobody is there")));
  Grants open = spec_.grants;
  open.folders.clear();
  NetworkReach some{{"pypi.example:443", "x.example:443"}, 0, false};
  std::string other = system_prompt(open, some, spec_.limits, true);
  EXPECT_THAT(other,
              AllOf(HasSubstr("No folder"), HasSubstr("and no others: pypi.example:443, x.example:443."),
                    HasSubstr("ask_user"), Not(HasSubstr("/mnt/report")), Not(HasSubstr("no network"))));
  some.asks = true;
  some.more = 3;
  EXPECT_THAT(system_prompt(open, some, spec_.limits, true),
              AllOf(HasSubstr("x.example:443, and 3 more. About any other the person is asked"),
                    Not(HasSubstr("no others"))));
  EXPECT_THAT(system_prompt(open, {{}, 0, true}, spec_.limits, true),
              AllOf(HasSubstr("the person is asked"), Not(HasSubstr("no network"))));
}

TEST_F(LoopTest, the_prompt_says_what_the_network_reaches_now) {
  struct Web : WebAccess {
    NetworkReach reach() const override { return now; }
    Result<WebPage> fetch(const std::string&, std::stop_token) override {
      return fail(ErrorCode::permission_denied, "refused");
    }
    NetworkReach now;
  } web;
  web_ = &web;
  FixedProvider provider({tool_turn({{"shell", R"({"command":"print x"})"}}), text_turn("done")});
  // The rules change while the model answers.
  provider.on_stream = [&] { web.now = {{"late.example:443"}, 0, false}; };
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  ASSERT_THAT(provider.requests, SizeIs(2));
  EXPECT_THAT(provider.requests[0].system, HasSubstr("has no network"));
  EXPECT_THAT(provider.requests[1].system, HasSubstr("late.example:443"));
}

TEST_F(LoopTest, a_folder_granted_meanwhile_is_told_before_the_next_turn_and_stays) {
  const FolderGrant late{"/home/a/late", "/mnt/late", FolderMode::read_write_no_delete};
  FixedProvider provider({tool_turn({{"shell", R"({"command":"print x"})"}}), text_turn("done")});
  const TaskId id = make_task().id();
  // While the model answers the first time, by somebody else.
  provider.on_stream = [&] {
    if (provider.requests.size() > 1) return;
    auto added = TaskStore::open(directory_.path() / "tasks")->add_folder(id, late);
    EXPECT_TRUE(added) << added.error().message;
  };
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  ASSERT_THAT(provider.requests, SizeIs(2));
  EXPECT_THAT(provider.requests[0].system, Not(HasSubstr("/mnt/late")));
  EXPECT_THAT(provider.requests[1].system, HasSubstr("/mnt/late"));
  const auto& last = provider.requests[1].messages.back();
  EXPECT_EQ(last.role, Role::user);
  EXPECT_THAT(text_of(last.blocks),
              AllOf(HasSubstr("/mnt/late"), HasSubstr("/home/a/late"), HasSubstr("cannot be deleted")));
  // It is told once, and there again when the task is opened again.
  auto messages = task_->messages();
  EXPECT_THAT(*messages, SizeIs(5));
  task_.reset();
  auto again = store_.open_task(id, clock_);
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_THAT(again->spec().grants.folders, SizeIs(3));
  EXPECT_EQ(again->spec().grants.folders[2].guest_path, "/mnt/late");
  EXPECT_EQ(again->spec().grants.folders[2].mode, FolderMode::read_write_no_delete);
  EXPECT_EQ(store_.add_folder(TaskId("nothing"), late).error().code, ErrorCode::not_found);
}

TEST_F(LoopTest, a_task_that_reached_its_limit_goes_on_with_another) {
  spec_.limits.turns = 1;
  FixedProvider provider({tool_turn({{"shell", R"({"command":"print x"})"}}), text_turn("done")});
  EXPECT_EQ(run(provider).end, TaskEnd::limit);
  EXPECT_EQ(run(provider).end, TaskEnd::limit);
  Limits more = task_->spec().limits;
  more.turns = 5;
  ProviderSpec moved = task_->spec().provider;
  moved.base_url = "http://elsewhere";
  ASSERT_TRUE(task_->change(more, moved));
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  const TaskId id = task_->id();
  task_.reset();
  auto again = store_.open_task(id, clock_);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->spec().limits.turns, 5u);
  EXPECT_EQ(again->spec().provider.base_url, "http://elsewhere");
  EXPECT_EQ(again->spec().provider.model, spec_.provider.model);
  EXPECT_THAT(again->spec().grants.folders, SizeIs(2));
}

TEST_F(LoopTest, old_results_are_shortened_to_fit_and_stay_readable) {
  std::vector<Result<Turn>> turns;
  for (int i = 0; i < 12; ++i) turns.push_back(tool_turn({{"shell", R"({"command":"flood 2000"})"}}));
  for (auto& turn : turns) turn->usage = {};  // the estimate stays as it is
  turns.push_back(tool_turn({{"read_output", R"({"call":1,"offset":1990,"length":10})"}}));
  turns.push_back(text_turn("done"));
  FixedProvider provider(std::move(turns));
  provider.model_limits = {8'000, 1'000};
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  const auto& last = provider.requests.back().messages;
  EXPECT_THAT(std::get<ToolResultBlock>(last[2].blocks[0]).text,
              HasSubstr("read_output, call 1, gives it again"));
  EXPECT_THAT(observer_.notices, Not(IsEmpty()));
  EXPECT_THAT(observer_.outcomes[12].text, HasSubstr("next offset 2000"));
  // What is stored is whole.
  auto stored = task_->messages();
  EXPECT_THAT(std::get<ToolResultBlock>((*stored)[2].blocks[0]).text, Not(HasSubstr("shortened")));
  // The beginning stays the same between shortenings, for the prompt cache.
  std::size_t changes = 0;
  for (std::size_t i = 1; i < provider.requests.size(); ++i) {
    const auto& before = provider.requests[i - 1].messages;
    const auto& after = provider.requests[i].messages;
    for (std::size_t m = 0; m < before.size(); ++m) {
      if (blocks_to_json(before[m].blocks) != blocks_to_json(after[m].blocks)) {
        ++changes;
        break;
      }
    }
  }
  EXPECT_LE(changes, 3u);
}

TEST_F(LoopTest, a_full_window_shortens_and_asks_again_then_gives_up) {
  Turn full{{}, StopReason::context_exceeded, "model_context_window_exceeded", "", {}, ""};
  FixedProvider provider({tool_turn({{"shell", R"({"command":"flood 2000"})"}}),
                          tool_turn({{"shell", R"({"command":"flood 2000"})"}}), full, text_turn("done")});
  EXPECT_EQ(run(provider).end, TaskEnd::completed);
  EXPECT_THAT(std::get<ToolResultBlock>(provider.requests[3].messages[2].blocks[0]).text,
              HasSubstr("shortened"));
  EXPECT_THAT(std::get<ToolResultBlock>(provider.requests[3].messages[4].blocks[0]).text,
              Not(HasSubstr("shortened")));
  task_.reset();
  FixedProvider hopeless({full, full});
  auto outcome = run(hopeless);
  EXPECT_EQ(outcome.end, TaskEnd::failed);
  EXPECT_THAT(outcome.reason, HasSubstr("no longer fits"));
}

TEST_F(LoopTest, asks_the_person_or_says_that_nobody_is_there) {
  EXPECT_THAT(call("ask_user", R"({"question":"Which year?"})").text, HasSubstr("nobody is there"));
  std::vector<std::string> offered;
  ask_user_ = [&](const std::string& question, const std::vector<std::string>& choices,
                  std::stop_token) -> Result<std::string> {
    offered = choices;
    return question + " 2024";
  };
  EXPECT_EQ(call("ask_user", R"({"question":"Which year?","choices":["2023","2024"]})").text,
            "Which year? 2024");
  EXPECT_THAT(offered, ElementsAre("2023", "2024"));
}

}  // namespace
}  // namespace anchorhold::agent
