// The program from the outside, as far as no guest is needed.
#include <sqlite3.h>
#include <thread>

#include "events/event_log.h"
#include "task_fixture.h"

namespace anchorhold::cli {
namespace {

using OfflineTest = TaskTest;

struct Fault {
  std::vector<std::string> argv;
  const char* says;
};

TEST_F(OfflineTest, TheRulesAreExplainedAndAnswersForgotten) {
  auto config = home() / "config/anchorhold";
  write_text(config / "config.toml",
             "[[egress.rule]]\nhost = \"*.example.com\"\naction = \"allow\"\nmethods = [\"GET\"]\n"
             "[[egress.rule]]\nhost = \"bad.example.com\"\naction = \"deny\"\n");
  write_text(
      config / "answers.toml",
      "# yesterday\n[[egress.rule]]\nhost = \"kept.example.org\"\nports = [443]\naction = \"allow\"\n");
  struct Case {
    std::vector<std::string> argv;
    int status;
    const char* says;
  };
  for (const auto& c : std::vector<Case>{
           {{"WWW.example.COM."}, 0, "config.toml:1"},
           {{"www.example.com", "--method", "POST"}, 1, "the method POST is not allowed"},
           {{"bad.example.com"}, 1, "config.toml:5"},
           {{"other.example.com:8443"}, 2, "no rule names"},
           {{"kept.example.org"}, 0, "answers.toml:2"},
           {{"127.0.0.1", "--resolve"}, 1, "a loopback address"},
           {{"not a host"}, 1, "is refused"},
       }) {
    std::vector<std::string> argv{"egress", "explain"};
    argv.insert(argv.end(), c.argv.begin(), c.argv.end());
    auto outcome = run(argv);
    EXPECT_EQ(outcome.status, c.status) << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find(c.says), std::string::npos) << outcome.out << outcome.err;
    argv.push_back("--json");
    auto object = objects(run(argv).out).at(0);
    EXPECT_EQ(object.at("verdict"), c.status == 0 ? "allow" : c.status == 1 ? "deny" : "ask");
  }
  auto rules = objects(run({"egress", "rules", "--json"}).out);
  ASSERT_EQ(rules.size(), 4u);
  EXPECT_EQ(rules[2].at("source"), "answers.toml:2");
  EXPECT_EQ(rules[3].at("action"), "ask");
  auto own = run({"egress", "forget", "bad.example.com"});
  EXPECT_EQ(own.status, 125);
  EXPECT_NE(own.err.find("config.toml:5"), std::string::npos) << own.err;
  EXPECT_EQ(run({"egress", "forget", "kept.example.org"}).status, 0);
  EXPECT_EQ(run({"egress", "explain", "kept.example.org"}).status, 2);
  EXPECT_EQ(run({"egress", "pending"}).status, 0);
  EXPECT_EQ(run({"egress", "answer", "nobody.1", "once"}).status, 125);
  write_text(config / "config.toml", "[[egress.rule]]\nhost = \"x\"\n");
  auto broken = run({"egress", "explain", "www.example.com"});
  EXPECT_EQ(broken.status, 1);
  EXPECT_NE(broken.out.find("config.toml:1"), std::string::npos) << broken.out;
  EXPECT_EQ(run({"egress", "rules"}).status, 1);
}

TEST_F(OfflineTest, FaultsAreTwoLinesAndStatus125) {
  auto work = folder("work");
  write_text(home() / "bad.json", "{\"turns\": 3}");
  write_text(home() / "empty.txt", "\n");
  const std::vector<Fault> faults{
      {{}, "subcommand"},
      {{"nonsense"}, "nonsense"},
      {{"run"}, "needs a command"},
      {{"run", "ls"}, "ls"},
      {{"run", "--cpus", "0", "--", "ls"}, "cpus"},
      {{"run", "--memory", "lots", "--", "ls"}, "lots"},
      {{"run", "--timeout", "soon", "--", "ls"}, "soon"},
      {{"run", "--env", "=x", "--", "ls"}, "NAME=VALUE"},
      {{"run", "--ro", home() / "missing", "--", "ls"}, "missing"},
      {{"run", "--rw", "/", "--", "ls"}, "/"},
      {{"run", "--ro", "/proc", "--", "ls"}, "/proc"},
      {{"run", "--ro", home() / "state", "--", "ls"}, "state"},
      {{"run", "--image", "no-such-image", "--", "ls"}, "no-such-image"},
      {{"task"}, "wish"},
      {{"task", "Do it"}, "model"},
      {{"task", "--model", "unknown:thing", "Do it"}, "unknown:thing"},
      {{"task", "--model", "scripted:" + (home() / "missing.json").string(), "Do it"}, "missing.json"},
      {{"task", "--model", "scripted:" + (home() / "bad.json").string(), "Do it"}, "bad.json"},
      {{"task", "--file", home() / "empty.txt", "--model", "openai:x", "--base-url", "http://127.0.0.1:1"},
       "empty.txt"},
      {{"task", "--model", "anthropic:x", "Do it"}, "ANTHROPIC_API_KEY"},
      {{"sessions", "show", "zzz"}, "zzz"},
      {{"sessions", "stop"}, "id"},
      {{"events", "verify", "--head", "12"}, "--head"},
      {{"image", "verify", "no-such-image"}, "no-such-image"},
      {{"image", "rm"}, "name"},
  };
  for (const auto& fault : faults) {
    auto outcome = run(fault.argv);
    std::string words;
    for (const auto& word : fault.argv) words += word + " ";
    SCOPED_TRACE(words + "\n" + outcome.err);
    EXPECT_TRUE(outcome.status == 125 || (fault.argv[0] == "image" && outcome.status == 1)) << outcome.status;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("error: "));
    EXPECT_NE(outcome.err.find(fault.says), std::string::npos);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2);
    EXPECT_NE(outcome.err.find("\nto do: "), std::string::npos);
  }
  EXPECT_TRUE(nothing_left());
}

TEST_F(OfflineTest, FaultsAreObjectsWithJson) {
  auto outcome = run({"sessions", "show", "zzz", "--json"});
  EXPECT_EQ(outcome.status, 125);
  auto all = objects(outcome.out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].at("type"), "error");
  EXPECT_EQ(all[0].at("code"), "not_found");
  auto usage = run({"sessions", "--nonsense", "--json"});
  EXPECT_EQ(objects(usage.out).size(), 1u);
}

TEST_F(OfflineTest, HelpAndVersionAreResults) {
  for (const auto& argv : std::vector<std::vector<std::string>>{{"--help"},
                                                                {"run", "--help"},
                                                                {"task", "--help"},
                                                                {"sessions", "--help"},
                                                                {"sessions", "resume", "--help"},
                                                                {"events", "--help"},
                                                                {"image", "--help"},
                                                                {"doctor", "--help"},
                                                                {"--version"}}) {
    auto outcome = run(argv);
    EXPECT_EQ(outcome.status, 0) << argv[0];
    EXPECT_FALSE(outcome.out.empty()) << argv[0];
    EXPECT_EQ(outcome.err, "") << argv[0];
  }
}

TEST_F(OfflineTest, TheEventLogIsListedFilteredAndVerified) {
  auto log_folder = home() / "state/anchorhold/events";
  std::filesystem::create_directories(home() / "state/anchorhold");
  std::string head;
  {
    auto log = events::EventLog::open({.folder = log_folder});
    ASSERT_TRUE(log) << log.error().message;
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE((*log)->record(
          events::Event(events::vm_start).set(SessionId(i < 2 ? "a" : "b")).set("text", "\x1b[31m red\n")));
    ASSERT_TRUE((*log)->record(events::Event(events::vm_fail).set("cause", "it broke")));
  }
  EXPECT_EQ(objects(run({"events", "list", "--json"}).out).size(), 6u);
  EXPECT_EQ(objects(run({"events", "list", "--json", "--session", "a"}).out).size(), 2u);
  EXPECT_EQ(objects(run({"events", "list", "--json", "--severity", "error"}).out).size(), 1u);
  auto text = run({"events", "list", "--limit", "1"});
  EXPECT_NE(text.out.find("cause=it broke"), std::string::npos);
  // What somebody else wrote cannot steer the terminal.
  EXPECT_EQ(run({"events", "list"}).out.find('\x1b'), std::string::npos);

  auto whole = objects(run({"events", "verify", "--json"}).out);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].at("whole"), true);
  head = whole[0].at("head");
  EXPECT_EQ(run({"events", "verify", "--head", head}).status, 0);

  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open((log_folder / "events.db").c_str(), &handle), SQLITE_OK);
  sqlite3_exec(
      handle, "DROP TRIGGER event_no_update; UPDATE event SET name = 'anchorhold.vm.stop' WHERE sequence = 3",
      nullptr, nullptr, nullptr);
  sqlite3_close(handle);
  auto tampered = run({"events", "verify"});
  EXPECT_EQ(tampered.status, 1);
  EXPECT_NE(tampered.out.find("record 3"), std::string::npos) << tampered.out;
  EXPECT_NE(tampered.err.find("to do: "), std::string::npos);
}

TEST_F(OfflineTest, WhatCannotBeSaidIsNoSuccess) {
  {
    auto log = events::EventLog::open({.folder = home() / "state/anchorhold/events"});
    ASSERT_TRUE(log) << log.error().message;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*log)->record(events::Event(events::exec_start)));
  }
  for (const char* words : {"events list", "events list --json", "events verify", "egress rules", "--help"}) {
    auto full =
        start_program({"/bin/sh", "-c", std::string("exec \"$0\" ") + words + " >/dev/full", program()})
            .finish();
    EXPECT_EQ(full.status, 125) << words;
    EXPECT_NE(full.err.find("error: the output could not be written: "), std::string::npos)
        << words << full.err;
    EXPECT_NE(full.err.find("\nto do: "), std::string::npos) << words << full.err;
  }
  // Who reads the beginning only is told nothing.
  auto begun = start({"events", "list"});
  begun.close_output();
  auto outcome = begun.finish();
  EXPECT_EQ(outcome.status, 128 + SIGPIPE);
  EXPECT_EQ(outcome.err, "");
}

// Nothing that the program or one of its libraries opens may become one of them.
TEST_F(OfflineTest, StandardStreamsThatAreClosedAreNothing) {
  for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"}) {
    auto running = start_program(
        {"/bin/sh", "-c", std::string("exec \"$0\" events follow --json ") + closed, program()});
    const std::filesystem::path process = "/proc/" + std::to_string(running.pid());
    // The thread of the signals is the first thing that the program itself starts.
    const auto deadline = std::chrono::steady_clock::now() + patience;
    auto threads = [&] {
      std::error_code error;
      std::filesystem::directory_iterator tasks(process / "task", error);
      return error ? 0 : std::distance(tasks, {});
    };
    while (threads() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    for (int fd : {0, 1, 2}) {
      const char* closes[] = {"<&-", ">&-", "2>&-"};
      auto words = " " + std::string(closed) + " ";
      if (words.find(" " + std::string(closes[fd]) + " ") == std::string::npos) continue;
      std::error_code error;
      EXPECT_EQ(std::filesystem::read_symlink(process / "fd" / std::to_string(fd), error), "/dev/null")
          << fd << " with " << closed;
    }
    running.signal(SIGTERM);
    running.finish();
  }
}

TEST_F(OfflineTest, FollowingEndsWithASignal) {
  auto running = start({"events", "follow", "--json"});
  auto log = events::EventLog::open({.folder = home() / "state/anchorhold/events"});
  ASSERT_TRUE(log) << log.error().message;
  ASSERT_TRUE((*log)->record(events::Event(events::vm_start)));
  running.read_until("anchorhold.vm.start");
  running.signal(SIGINT);
  EXPECT_EQ(running.finish().status, 0);
}

TEST_F(OfflineTest, TheKeyIsNeverShownOrStored) {
  write_text(home() / "key", "sk-very-secret-key\n");
  std::filesystem::permissions(home() / "key", std::filesystem::perms(0644));
  auto work = folder("work");
  auto outcome =
      run({"task", "--verbose", "--image", "no-such-image", "--rw", work, "--model", "openai:x", "--base-url",
           "http://127.0.0.1:9", "--key-file", home() / "key", "--max-time", "5s", "Do it"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ((outcome.out + outcome.err).find("very-secret"), std::string::npos);
  EXPECT_NE(outcome.err.find("warning: other users can read the key file"), std::string::npos) << outcome.err;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(home() / "state")) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(read_text(entry.path()).find("very-secret"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace anchorhold::cli
