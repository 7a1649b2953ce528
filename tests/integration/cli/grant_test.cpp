// anchorhold sessions grant: folders that a running session is given.
#include <algorithm>
#include <signal.h>

#include "task_fixture.h"

namespace anchorhold::cli {
namespace {

class GrantTest : public TaskTest {
 protected:
  void SetUp() override {
    TaskTest::SetUp();
    ANCHORHOLD_NEEDS_IMAGE();
  }
  // A shell in a guest that does what it is told, line by line.
  Running start_shell(std::vector<std::string> options = {}) {
    std::vector<std::string> argv{"run", "--image", image_};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--", "bash", "-c",
                             "echo ready; while read -r line; do eval \"$line\" 2>&1; status=$?; "
                             "n=$((n + 1)); echo \"$n: status $status.\"; done"});
    auto running = start(argv);
    running.read_until("ready\n");
    return running;
  }
  // The shell numbers its answers: one that it gave before is not taken for this one.
  void tell(Running& shell, const std::string& command, int status) {
    SCOPED_TRACE(command);
    shell.write_input(command + "\n");
    shell.read_until(std::to_string(++told_[&shell]) + ": status " + std::to_string(status) + ".\n");
  }
  std::string session_of(const Running& running) {
    for (const auto& session : objects(run({"sessions", "--json"}).out))
      if (session.at("pid") == running.pid()) return session.at("id");
    ADD_FAILURE() << "its session is not listed";
    return "none";
  }
  std::vector<json> grant_events(const std::string& session) {
    return objects(
        run({"events", "list", "--json", "--session", session, "--name", "anchorhold.mount.grant"}).out);
  }

  std::map<const Running*, int> told_;
};

TEST_F(GrantTest, ARunningCommandGetsMoreFoldersAndNoOthers) {
  auto first = folder("a/work"), second = folder("b/work"), kept = folder("kept"), files = folder("files");
  write_text(second / "text", "second");
  write_text(kept / "old", "old");
  write_text(files / "one", "one\n");
  write_text(files / "two", "two\n");
  auto shell =
      start_shell({"--rw", first, "--write-limit", "1M", "--file-limit", "30", "--refuse-escaping-symlinks"});
  const auto id = session_of(shell);
  tell(shell, "test ! -e /mnt/work-2", 0);

  auto granted = run({"sessions", "grant", id, "--ro", second, "--json"});
  EXPECT_EQ(granted.status, 0) << granted.err;
  auto answers = objects(granted.out);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].at("guest_path"), "/mnt/work-2");
  EXPECT_EQ(answers[0].at("host_path"), second.string());
  tell(shell, "test \"$(cat /mnt/work-2/text)\" = second", 0);
  tell(shell, "touch /mnt/work-2/new", 1);

  granted = run({"sessions", "grant", id, "--rw-no-delete", kept, "--rw", files / "one"});
  EXPECT_EQ(granted.status, 0) << granted.err;
  EXPECT_NE(granted.out.find("/mnt/kept"), std::string::npos);
  EXPECT_NE(granted.out.find("/mnt/one/one"), std::string::npos);
  tell(shell, "echo new > /mnt/kept/new && mv /mnt/kept/new /mnt/kept/newer", 0);
  EXPECT_EQ(read_text(kept / "newer"), "new\n");
  tell(shell, "rm /mnt/kept/old", 1);
  EXPECT_EQ(read_text(kept / "old"), "old");
  tell(shell, "echo more >> /mnt/one/one", 0);
  EXPECT_EQ(read_text(files / "one"), "one\nmore\n");
  tell(shell, "test -e /mnt/one/two", 1);
  // The session's limits hold in each folder, however it came by it.
  for (const std::string name : {"work", "kept"}) {
    tell(shell, "cd /mnt/" + name + "; ln -s new inner; ln -s ../../etc leads-out", 1);
    tell(shell, "ln -s /etc/passwd leads-out", 1);
    tell(shell, "test -L inner && test ! -L leads-out", 0);
    tell(shell, "head -c 900K /dev/zero > some", 0);
    tell(shell, "head -c 200K /dev/zero > more", 1);
    tell(shell, "for i in $(seq 30); do mkdir d$i || break; done; test -d d10 && test ! -d d30", 0);
  }

  // Refused: nothing changes.
  struct Refused {
    std::string option, path, says;
  };
  for (const auto& refused : std::vector<Refused>{
           {"--ro", "/", "cannot be granted"},
           {"--rw", kept, "granted already"},
           {"--rw", kept.parent_path(), "which would be rw"},
           {"--ro", home() / "state", "own state"},
           {"--ro", home() / "nothing", "No such file"},
       }) {
    auto outcome = run({"sessions", "grant", id, refused.option, refused.path});
    EXPECT_EQ(outcome.status, 125) << refused.path;
    EXPECT_NE(outcome.err.find(refused.says), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("to do: "), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(grant_events(id).size(), 4u);

  // The last device, and one too many.
  EXPECT_EQ(run({"sessions", "grant", id, "--ro", folder("fourth")}).status, 0);
  auto full = run({"sessions", "grant", id, "--ro", folder("fifth")});
  EXPECT_EQ(full.status, 125);
  EXPECT_NE(full.err.find("no device left"), std::string::npos) << full.err;
  tell(shell, "test -d /mnt/fourth && test ! -e /mnt/fifth", 0);

  auto shown = objects(run({"sessions", "show", id, "--json"}).out);
  ASSERT_EQ(shown.size(), 1u);
  ASSERT_EQ(shown[0].at("grants").size(), 5u);
  EXPECT_EQ(shown[0].at("grants")[1], "ro " + second.string() + " → /mnt/work-2");

  shell.close_input();
  EXPECT_EQ(shell.finish().status, 0);
  EXPECT_TRUE(nothing_left());
  auto late = run({"sessions", "grant", id, "--ro", folder("late")});
  EXPECT_EQ(late.status, 125);
  EXPECT_NE(late.err.find("does not run"), std::string::npos) << late.err;
  EXPECT_EQ(grant_events(id).size(), 5u);
  EXPECT_TRUE(std::filesystem::is_empty(home() / "run/anchorhold/sessions"));
}

TEST_F(GrantTest, TwoSessionsAreGivenTheirOwn) {
  auto first = start_shell(), second = start_shell({"--timeout", "1h"});
  const auto one = session_of(first), two = session_of(second);
  write_text(folder("one") / "text", "1");
  write_text(folder("two") / "text", "2");
  auto giving = start({"sessions", "grant", one, "--rw", folder("one")});
  EXPECT_EQ(run({"sessions", "grant", two, "--rw", folder("two")}).status, 0);
  EXPECT_EQ(giving.finish().status, 0);
  tell(first, "test \"$(ls /mnt)\" = one && echo 11 > /mnt/one/text", 0);
  tell(second, "test \"$(ls /mnt)\" = two && echo 22 > /mnt/two/text", 0);
  EXPECT_EQ(read_text(folder("one") / "text"), "11\n");
  EXPECT_EQ(read_text(folder("two") / "text"), "22\n");
  // A time limit of the command bounds its machine as well.
  for (const auto& [id, limited] : {std::pair(one, false), std::pair(two, true)}) {
    auto starts =
        objects(run({"events", "list", "--json", "--session", id, "--name", "anchorhold.vm.start"}).out);
    ASSERT_EQ(starts.size(), 1u);
    EXPECT_EQ(starts[0].at("attributes").contains("vm.wall_time_ms"), limited);
  }
  for (auto* shell : {&first, &second}) {
    shell->close_input();
    EXPECT_EQ(shell->finish().status, 0);
  }
}

TEST_F(GrantTest, ATaskKeepsWhatItWasGivenAndGoesOnWithOtherLimits) {
  auto work = folder("work"), late = folder("late");
  write_text(late / "text", "late");
  auto model = script({
      {shell("echo yes > /mnt/work/waiting; while ! test -e /mnt/late/text; do sleep 0.1; done; cat "
             "/mnt/late/text > /mnt/work/seen")},
      {call("write_file", {{"path", "/mnt/late/new"}, {"content", "written"}})},
      {shell("cat /mnt/late/text >> /mnt/work/seen")},
      {words("Done.")},
  });
  auto running = start({"task", "--json", "--image", image_, "--rw", work, "--model", model, "--max-turns",
                        "2", "Wait for a folder"});
  ASSERT_TRUE(appears(work / "waiting", "yes\n", running));
  const auto id = session_of(running);
  auto granted = run({"sessions", "grant", id, "--rw", late});
  EXPECT_EQ(granted.status, 0) << granted.err;
  auto limited = running.finish();
  EXPECT_EQ(limited.status, 1) << limited.out << limited.err;
  EXPECT_EQ(read_text(work / "seen"), "late");
  EXPECT_EQ(read_text(late / "new"), "written");
  EXPECT_EQ(of_type(objects(limited.out), "task_end")[0].at("end"), "limit");

  auto resumed = run({"sessions", "resume", id, "--max-turns", "10", "--json"});
  EXPECT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_EQ(read_text(work / "seen"), "latelate");
  EXPECT_EQ(of_type(objects(resumed.out), "task")[0].at("grants").size(), 2u);
}

}  // namespace
}  // namespace anchorhold::cli
