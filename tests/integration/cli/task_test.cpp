// anchorhold task, with scripted models and real guests.
#include <algorithm>
#include <signal.h>

#include "task_fixture.h"

namespace anchorhold::cli {
namespace {

class GuestTaskTest : public TaskTest {
 protected:
  void SetUp() override {
    TaskTest::SetUp();
    ANCHORHOLD_NEEDS_IMAGE();
  }
};

TEST_F(GuestTaskTest, WorkIsDoneInTheFolderAndOutputsAreNamed) {
  auto work = folder("work");
  write_text(work / "numbers.txt", "1\n2\n39\n");
  auto model = script({
      {words("I will add them."), call("plan", {{"items", {{{"text", "add"}, {"state", "in_progress"}}}}}),
       shell("python3 -c \"print(sum(int(l) for l in open('/mnt/work/numbers.txt')))\"")},
      {call("write_file", {{"path", "/mnt/work/sum.txt"}, {"content", "{{last_result}}"}})},
      {shell("cat sum.txt; touch /nothing-here-is-kept; echo oops >&2; exit 3"),
       call("deliver", {{"path", "/mnt/work/sum.txt"}})},
      {words("Done.")},
  });
  auto outcome =
      run({"task", "--json", "--image", image_, "--rw", work, "--model", model, "Add the numbers"});
  EXPECT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_NE(read_text(work / "sum.txt").find("42"), std::string::npos);
  auto all = objects(outcome.out);
  auto results = of_type(all, "tool_result");
  ASSERT_EQ(results.size(), 5u);
  EXPECT_NE(results[3].at("text").get<std::string>().find("oops"), std::string::npos);
  auto ends = of_type(all, "task_end");
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].at("end"), "completed");
  EXPECT_EQ(ends[0].at("answer"), "Done.");
  ASSERT_EQ(ends[0].at("outputs").size(), 1u);
  EXPECT_EQ(ends[0].at("outputs")[0].at("host_path"), (work / "sum.txt").string());
  EXPECT_EQ(of_type(all, "plan").size(), 1u);

  std::string id = ends[0].at("task");
  auto shown = objects(run({"sessions", "show", id, "--json"}).out);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].at("task").at("state"), "completed");
  EXPECT_EQ(shown[0].at("task").at("calls").size(), 5u);
  auto events = objects(run({"events", "list", "--json", "--task", id}).out);
  auto count = [&](const std::string& name) {
    return std::count_if(events.begin(), events.end(),
                         [&](const json& event) { return event.at("name") == name; });
  };
  EXPECT_EQ(count("anchorhold.mount.grant"), 1);
  EXPECT_EQ(count("anchorhold.vm.ready"), 1);
  EXPECT_EQ(count("anchorhold.exec.start"), 2);
  EXPECT_EQ(count("anchorhold.tool.call"), 5);
  EXPECT_EQ(count("anchorhold.tool.result"), 5);
  EXPECT_EQ(run({"events", "verify"}).status, 0);
  EXPECT_TRUE(nothing_left());

  // What it made could still be undone: that is not forgotten by the way.
  auto kept = run({"sessions", "rm", id});
  EXPECT_EQ(kept.status, 125);
  EXPECT_NE(kept.err.find("--forget-undo"), std::string::npos) << kept.err;
  EXPECT_TRUE(std::filesystem::exists(home() / "state/anchorhold/ledgers" / id));
  EXPECT_EQ(run({"sessions", "rm", "--forget-undo", id}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(home() / "state/anchorhold/ledgers" / id));
  EXPECT_TRUE(objects(run({"sessions", "--json"}).out).empty());
  EXPECT_FALSE(std::filesystem::exists(home() / "state/anchorhold/tasks" / id));
}

TEST_F(GuestTaskTest, AKilledHostResumesWithoutRunningACallTwice) {
  auto work = folder("work");
  auto model = script({
      {shell("echo first >> log")},
      {shell("echo second >> log; sleep 1000")},
      {shell("echo third >> log; cat log")},
      {words("Done.")},
  });
  auto running = start({"task", "--json", "--image", image_, "--rw", work, "--model", model, "Write a log"});
  ASSERT_TRUE(appears(work / "log", "first\nsecond\n", running)) << running.finish().err;
  running.signal(SIGKILL);
  EXPECT_EQ(running.finish().status, 137);

  auto sessions = objects(run({"sessions", "--json"}).out);
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].at("state"), "interrupted");
  std::string id = sessions[0].at("id");
  auto outcome = run({"sessions", "resume", id, "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_EQ(read_text(work / "log"), "first\nsecond\nthird\n");
  auto shown = objects(run({"sessions", "show", id, "--json"}).out);
  ASSERT_EQ(shown.size(), 1u);
  auto calls = shown[0].at("task").at("calls");
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].at("verdict"), "ok");
  EXPECT_EQ(calls[1].at("verdict"), "interrupted");
  EXPECT_EQ(calls[2].at("verdict"), "ok") << calls[2];
  EXPECT_EQ(run({"events", "verify"}).status, 0);
}

TEST_F(GuestTaskTest, ATaskIsStoppedFromElsewhereAndGoesOnLater) {
  auto work = folder("work"), kept = folder("kept");
  write_text(kept / "old", "old");
  auto model = script({{shell("rm /mnt/kept/old; echo new > /mnt/kept/new; mv /mnt/kept/new /mnt/kept/newer; "
                              "echo begun > state; sleep 1000")},
                       {shell("rm /mnt/kept/old; mv /mnt/kept/newer /mnt/kept/newest; echo resumed > state")},
                       {words("Done.")}});
  auto running =
      start({"task", "--image", image_, "--rw", work, "--rw-no-delete", kept, "--model", model, "Wait"});
  ASSERT_TRUE(appears(work / "state", "begun\n", running)) << running.finish().err;
  auto sessions = objects(run({"sessions", "--json"}).out);
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].at("state"), "running");
  std::string id = sessions[0].at("id");
  EXPECT_EQ(run({"sessions", "rm", id}).status, 125);      // not while it runs
  EXPECT_EQ(run({"sessions", "resume", id}).status, 125);  // neither twice
  EXPECT_EQ(run({"sessions", "stop", id.substr(0, 11)}).status, 0);
  auto stopped = running.finish();
  EXPECT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
  EXPECT_NE(stopped.err.find("sessions resume " + id), std::string::npos) << stopped.err;
  EXPECT_TRUE(nothing_left());
  auto outcome = run({"sessions", "resume", id});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(read_text(work / "state"), "resumed\n");
  // What was there before stays, and what the task made is its own also when it goes on.
  EXPECT_EQ(read_text(kept / "old"), "old");
  EXPECT_EQ(read_text(kept / "newest"), "new\n");
  auto grants = objects(run({"sessions", "show", id, "--json"}).out).at(0).at("grants");
  EXPECT_EQ(grants.at(1), "rw-no-delete " + kept.string() + " → /mnt/kept");
  EXPECT_EQ(run({"undo", id}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(kept / "newest"));
  EXPECT_EQ(read_text(kept / "old"), "old");
}

TEST_F(GuestTaskTest, AGuestThatIsKilledIsToldToTheModelAndTheNextCommandGetsAFreshOne) {
  auto work = folder("work");
  auto model = script({{shell("echo begun > state; sleep 1000")},
                       {call("write_file", {{"path", "/mnt/work/told"}, {"content", "{{last_result}}"}})},
                       {shell("echo fresh > state")},
                       {words("Done.")}});
  auto running = start({"task", "--image", image_, "--rw", work, "--model", model, "Go on"});
  ASSERT_TRUE(appears(work / "state", "begun\n", running)) << running.finish().err;
  pid_t machine = process_named("qemu-system-x86_64");
  ASSERT_GT(machine, 0);
  ASSERT_EQ(kill(machine, SIGKILL), 0);
  auto outcome = running.finish();
  EXPECT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_NE(read_text(work / "told").find("killed"), std::string::npos) << read_text(work / "told");
  EXPECT_EQ(read_text(work / "state"), "fresh\n");
}

TEST_F(TaskTest, WithoutAGuestTheTaskGoesOnAndTheShellSaysWhy) {
  auto work = folder("work");
  write_text(work / "in.txt", "hello\n");
  auto model = script({{shell("cat in.txt")},
                       {call("write_file", {{"path", "/mnt/work/why.txt"}, {"content", "{{last_result}}"}})},
                       {call("read_file", {{"path", "/mnt/work/in.txt"}})},
                       {words("Done without a shell.")}});
  auto outcome = run({"task", "--json", "--image", "no-such-image", "--rw", work, "--model", model, "Try"});
  EXPECT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  std::string why = read_text(work / "why.txt");
  EXPECT_NE(why.find("no-such-image"), std::string::npos) << why;
  auto results = of_type(objects(outcome.out), "tool_result");
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].at("verdict"), "error");
  EXPECT_NE(results[2].at("text").get<std::string>().find("hello"), std::string::npos);
  EXPECT_TRUE(nothing_left());
}

TEST_F(TaskTest, FileToolsKeepToTheGrants) {
  auto reading = folder("reading");
  write_text(reading / "in.txt", "hello\n");
  write_text(home() / "data/secret.txt", "secret\n");
  auto model = script({{call("write_file", {{"path", "/mnt/reading/new.txt"}, {"content", "x"}})},
                       {call("read_file", {{"path", (home() / "data/secret.txt").string()}})},
                       {call("read_file", {{"path", "/mnt/reading/../secret.txt"}})},
                       {words("Done.")}});
  auto outcome =
      run({"task", "--json", "--image", "no-such-image", "--ro", reading, "--model", model, "Try"});
  EXPECT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  auto results = of_type(objects(outcome.out), "tool_result");
  ASSERT_EQ(results.size(), 3u);
  for (const auto& result : results) {
    EXPECT_EQ(result.at("verdict"), "error") << result;
    EXPECT_EQ(result.at("text").get<std::string>().find("secret\n"), std::string::npos) << result;
  }
  EXPECT_FALSE(std::filesystem::exists(reading / "new.txt"));
}

TEST_F(TaskTest, ALimitEndsTheTaskWithItsReason) {
  auto work = folder("work");
  std::vector<std::vector<json>> turns(10, {call("list", {{"path", "/mnt/work"}})});
  auto outcome = run({"task", "--image", "no-such-image", "--ro", work, "--model", script(turns),
                      "--max-turns", "3", "Loop"});
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_NE(outcome.err.find("error: "), std::string::npos);
  EXPECT_NE(outcome.err.find("3"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace anchorhold::cli
