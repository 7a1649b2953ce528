// anchorhold run, with real guests.
#include <random>
#include <signal.h>
#include <unistd.h>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

class RunTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ANCHORHOLD_NEEDS_IMAGE();
  }
  std::vector<std::string> in_guest(std::vector<std::string> options,
                                    const std::vector<std::string>& command) {
    std::vector<std::string> argv{"run", "--image", image_};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.push_back("--");
    argv.insert(argv.end(), command.begin(), command.end());
    return argv;
  }
  Outcome run_in_guest(const std::vector<std::string>& options, const std::vector<std::string>& command,
                       std::string_view input = {}) {
    return run(in_guest(options, command), input);
  }
};

TEST_F(RunTest, ArgumentsStreamsAndStatusAreTheCommands) {
  auto outcome = run_in_guest(
      {"--env", "GREETING=good morning", "--env", "EMPTY=", "--cwd", "/tmp"},
      {"sh", "-c", "printf '%s|' \"$@\"; echo \"$GREETING|$EMPTY|$PWD\"; echo careful >&2; exit 7", "sh",
       "a b", "*", "", "--json", "--", "\xff"});
  EXPECT_EQ(outcome.status, 7) << outcome.err;
  EXPECT_EQ(outcome.out, "a b|*||--json|--|\xff|good morning||/tmp\n");
  EXPECT_NE(outcome.err.find("careful\n"), std::string::npos);
  EXPECT_EQ(outcome.out.find("careful"), std::string::npos);

  std::vector<std::string> names;
  for (const auto& event : objects(run({"events", "list", "--json"}).out)) {
    names.push_back(event.at("name"));
    EXPECT_EQ(event.at("attributes").count("session.id"), 1u);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"anchorhold.policy.load", "anchorhold.vm.start", "anchorhold.vm.ready",
                                      "anchorhold.exec.start", "anchorhold.exec.end", "anchorhold.vm.stop"}));
  EXPECT_EQ(run({"events", "verify"}).status, 0);
  auto sessions = objects(run({"sessions", "list", "--json"}).out);
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].at("state"), "ended");
  EXPECT_EQ(sessions[0].at("end"), "exit status 7");
  // Said once, not at every start.
  auto second = run_in_guest({}, {"true"});
  EXPECT_EQ(second.status, 0);
  EXPECT_EQ(second.err, "");
}

TEST_F(RunTest, BytesPassThroughUnchanged) {
  std::mt19937 random(7);
  std::string bytes(3 << 20, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(random());
  auto outcome = run_in_guest({}, {"cat"}, bytes);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out.size(), bytes.size());
  EXPECT_TRUE(outcome.out == bytes);
}

TEST_F(RunTest, EmptyInputEnds) {
  auto outcome = run_in_guest({}, {"wc", "-c"});
  EXPECT_EQ(outcome.out, "0\n");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(RunTest, TheTimeLimitEndsTheWholeTree) {
  auto outcome = run_in_guest({"--timeout", "2s"}, {"sh", "-c", "sleep 1000 & echo begun; sleep 1000"});
  EXPECT_EQ(outcome.status, 124) << outcome.err;
  EXPECT_EQ(outcome.out, "begun\n");
  EXPECT_NE(outcome.err.find("time limit"), std::string::npos) << outcome.err;
}

TEST_F(RunTest, AKilledCommandIs137) {
  auto outcome = run_in_guest({}, {"sh", "-c", "echo last words; kill -9 $$"});
  EXPECT_EQ(outcome.status, 137) << outcome.err;
  EXPECT_EQ(outcome.out, "last words\n");
}

TEST_F(RunTest, ACommandThatIsNotThereSaysSo) {
  auto outcome = run_in_guest({}, {"no-such-program"});
  EXPECT_EQ(outcome.status, 127) << outcome.err;
  EXPECT_NE(outcome.err.find("error: no-such-program"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("to do: "), std::string::npos) << outcome.err;
}

TEST_F(RunTest, FoldersAreWhereTheyShouldBeWithTheirModes) {
  auto reading = folder("a/report"), writing = folder("b/report");
  write_text(reading / "in.txt", "one\n");
  write_text(writing / "old.txt", "old\n");
  write_text(home() / "data/single.txt", "alone\n");
  auto outcome = run_in_guest({"--ro", reading, "--rw", writing, "--ro", home() / "data/single.txt"},
                              {"sh", "-c",
                               "pwd; cat in.txt /mnt/single.txt/single.txt; ls /mnt;"
                               "echo no > in.txt; rm in.txt; echo no > /mnt/single.txt/single.txt;"
                               "cp in.txt /mnt/report-2/copy.txt && rm /mnt/report-2/old.txt && echo done"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "/mnt/report\none\nalone\nreport\nreport-2\nsingle.txt\ndone\n") << outcome.err;
  EXPECT_EQ(read_text(reading / "in.txt"), "one\n");
  EXPECT_EQ(read_text(home() / "data/single.txt"), "alone\n");
  EXPECT_EQ(read_text(writing / "copy.txt"), "one\n");
  EXPECT_FALSE(std::filesystem::exists(writing / "old.txt"));
}

TEST_F(RunTest, RootInTheGuestCannotMakeReadOnlyWritable) {
  auto reading = folder("report");
  write_text(reading / "in.txt", "one\n");
  auto outcome = run_in_guest(
      {"--ro", reading, "--user", "root"},
      {"sh", "-c",
       "id -u; mount -o remount,rw /mnt/report; echo no > /mnt/report/in.txt; rm /mnt/report/in.txt;"
       "touch /mnt/report/new; cat /mnt/report/in.txt"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "0\none\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(reading), {}), 1);
  auto violations = objects(run({"events", "list", "--json", "--name", "anchorhold.mount.violation"}).out);
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations[0].at("attributes").at("mount.name"), "report");
  EXPECT_EQ(violations[0].at("severity"), "warn");
}

TEST_F(RunTest, ClosedStreamsAreNoHarm) {
  auto running =
      start_program({"/bin/sh", "-c",
                     "exec \"$0\" run --image \"$1\" -- sh -c 'echo out; echo err >&2; exit 4' <&- >&- 2>&-",
                     program(), image_});
  EXPECT_EQ(running.finish().status, 4);
  EXPECT_EQ(run({"events", "verify"}).status, 0);
  EXPECT_EQ(objects(run({"sessions", "--json"}).out).size(), 1u);
}

TEST_F(RunTest, SignalsGoToTheCommand) {
  auto running = start(in_guest(
      {}, {"sh", "-c", "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done"}));
  running.read_until("ready\n");
  running.signal(SIGINT);
  auto outcome = running.finish();
  EXPECT_EQ(outcome.status, 9) << outcome.err;
  EXPECT_EQ(outcome.out, "ready\ninterrupted\n");
}

TEST_F(RunTest, TheSameSignalAgainEndsACommandThatIgnoresIt) {
  auto running =
      start(in_guest({}, {"sh", "-c", "trap 'echo ignored' TERM; echo ready; while :; do sleep 0.1; done"}));
  running.read_until("ready\n");
  running.signal(SIGTERM);
  running.read_until("ignored\n");
  running.signal(SIGTERM);
  EXPECT_EQ(running.finish().status, 128 + SIGTERM);
  EXPECT_TRUE(nothing_left());
}

TEST_F(RunTest, WhenNobodyReadsTheOutputTheCommandEnds) {
  auto running = start(in_guest({}, {"yes"}));
  running.read_until("y\n");
  running.close_output();
  EXPECT_EQ(running.finish().status, 128 + SIGPIPE);
}

TEST_F(RunTest, WhenNobodyReadsTheErrorsOrTheyCannotBeWrittenTheCommandEndsToo) {
  struct Case {
    const char* command;
    const char* redirection;
    int status;
    const char* says;
  };
  for (const auto& c : {Case{"yes >&2", "2> >(head -c 2 >/dev/null)", 128 + SIGPIPE, ""},
                        Case{"yes", ">/dev/full", 125, "error: the output could not be written"}}) {
    auto outcome = start_program({"/bin/bash", "-c",
                                  std::string("exec \"$0\" run --image \"$1\" -- sh -c '") + c.command +
                                      "' " + c.redirection,
                                  program(), image_})
                       .finish();
    EXPECT_EQ(outcome.status, c.status) << c.redirection << outcome.err;
    EXPECT_NE(outcome.err.find(c.says), std::string::npos) << outcome.err;
  }
}

TEST_F(RunTest, TwoAtOnceDoNotDisturbEachOther) {
  auto first = start(in_guest({}, {"sh", "-c", "echo first; read line; echo \"$line\""}));
  auto second = start(in_guest({}, {"sh", "-c", "echo second; read line; echo \"$line\""}));
  first.read_until("first\n");
  second.read_until("second\n");
  first.write_input("one\n");
  second.write_input("two\n");
  auto one = first.finish(), two = second.finish();
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(one.out, "first\none\n");
  EXPECT_EQ(two.out, "second\ntwo\n");
  EXPECT_EQ(run({"events", "verify"}).status, 0);
}

TEST_F(RunTest, NothingIsLeftWhenTheHostIsKilled) {
  auto shared = folder("shared");
  auto running = start(in_guest({"--rw", shared}, {"sh", "-c", "echo ready; sleep 1000"}));
  running.read_until("ready\n");
  EXPECT_GE(processes_of_this_test().size(), 5u);  // ourselves, QEMU, vsockd, fsd, keeper and the reaper
  running.signal(SIGKILL);
  EXPECT_EQ(running.finish().status, 137);
  const auto killed = std::chrono::steady_clock::now();
  ASSERT_TRUE(nothing_left()) << "process " << processes_of_this_test()[0];
  auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - killed);
  RecordProperty("milliseconds_until_nothing_was_left", static_cast<int>(took.count()));
  auto sessions = objects(run({"sessions", "--json"}).out);
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].at("state"), "interrupted");
  // The next start clears away what was left on the disk.
  EXPECT_EQ(run_in_guest({}, {"true"}).status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(home() / "run/anchorhold/guests"));
}

TEST_F(RunTest, AKilledMachineIsNamedAsTheCause) {
  auto running = start(in_guest({}, {"sh", "-c", "echo ready; sleep 1000"}));
  running.read_until("ready\n");
  pid_t machine = process_named("qemu-system-x86_64");
  ASSERT_GT(machine, 0);
  ASSERT_EQ(kill(machine, SIGKILL), 0);
  auto outcome = running.finish();
  EXPECT_EQ(outcome.status, 125);
  EXPECT_NE(outcome.err.find("virtual machine's process was killed"), std::string::npos) << outcome.err;
  EXPECT_TRUE(nothing_left());
  auto failures = objects(run({"events", "list", "--json", "--name", "anchorhold.vm.fail"}).out);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_NE(failures[0].at("attributes").at("cause").get<std::string>().find("killed"), std::string::npos);
}

TEST_F(RunTest, ADeadDeviceEndsTheGuestWithItsCause) {
  for (const char* name : {"anchorhold-vsockd", "anchorhold-fsd", "anchorhold-keeper"}) {
    auto running = start(in_guest({"--rw", folder("shared")}, {"sh", "-c", "echo ready; sleep 1000"}));
    running.read_until("ready\n");
    pid_t victim = process_named(name);
    ASSERT_GT(victim, 0) << name;
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    auto outcome = running.finish();
    EXPECT_EQ(outcome.status, 125) << name;
    EXPECT_NE(outcome.err.find("signal 9"), std::string::npos) << name << ": " << outcome.err;
    EXPECT_TRUE(nothing_left()) << name;
  }
}

}  // namespace
}  // namespace anchorhold::cli
