#include "cli/arguments.h"

#include <gtest/gtest.h>

namespace anchorhold::cli {
namespace {

using Words = std::vector<std::string>;

Arguments parsed(const Words& argv) {
  auto result = parse_arguments(argv);
  if (!result) {
    ADD_FAILURE() << result.error().message;
    return {};
  }
  if (!std::holds_alternative<Arguments>(*result)) {
    ADD_FAILURE() << "help instead of arguments";
    return {};
  }
  return std::get<Arguments>(*result);
}

template <typename Command>
Command command(const Words& argv) {
  return std::get<Command>(parsed(argv).command);
}

TEST(Arguments, APassphraseHasNoName) {
  auto change = command<CredentialCommand>({"credential", "passphrase"});
  EXPECT_EQ(change.action, CredentialCommand::Action::passphrase);
  EXPECT_FALSE(change.none);
  EXPECT_TRUE(command<CredentialCommand>({"credential", "passphrase", "--none", "--json"}).none);
  EXPECT_FALSE(parse_arguments({"credential", "passphrase", "secret-words"}));
}

TEST(Arguments, Egress) {
  auto explain = command<EgressCommand>({"egress", "explain", "Example.com:8443", "--session", "3f",
                                         "--method", "GET", "--path", "/v1", "--resolve"});
  EXPECT_EQ(explain.action, EgressCommand::Action::explain);
  EXPECT_EQ(explain.query.target, "Example.com:8443");
  EXPECT_EQ(explain.query.method, "GET");
  EXPECT_EQ(explain.query.path, "/v1");
  EXPECT_EQ(explain.session, "3f");
  EXPECT_TRUE(explain.resolve);
  EXPECT_EQ(command<EgressCommand>({"egress", "pending"}).action, EgressCommand::Action::pending);
  EXPECT_EQ(command<EgressCommand>({"egress", "rules", "--session", "3f"}).session, "3f");
  EXPECT_EQ(command<EgressCommand>({"egress", "forget", "example.com"}).rule, "example.com");
  for (const auto& [word, answer] : std::vector<std::pair<std::string, session::Approval>>{
           {"once", session::Approval::allow_once},
           {"session", session::Approval::allow_for_session},
           {"always", session::Approval::allow_always},
           {"never", session::Approval::deny_always},
           {"deny", session::Approval::deny}}) {
    auto given = command<EgressCommand>({"egress", "answer", "3f.2", word});
    EXPECT_EQ(given.question, "3f.2");
    EXPECT_EQ(given.answer, answer);
  }
  for (const Words& wrong : std::vector<Words>{{"egress"},
                                               {"egress", "explain"},
                                               {"egress", "answer", "3f.2"},
                                               {"egress", "answer", "3f.2", "yes"},
                                               {"egress", "forget"},
                                               {"egress", "nonsense"}})
    EXPECT_FALSE(parse_arguments(wrong)) << wrong.back();
  EXPECT_TRUE(command<RunCommand>({"run", "--wait-for-answers", "--", "ls"}).guest.wait_for_answers);
  EXPECT_TRUE(command<SessionsCommand>({"sessions", "resume", "3f", "--wait-for-answers"}).wait_for_answers);
}

TEST(Arguments, RunWithEverything) {
  auto run = command<RunCommand>(
      {"run", "--rw",     "/a",     "--ro",      "/b",    "--rw",  "/c",  "--image", "full",  "--cpus",
       "4",   "--memory", "3GiB",   "--timeout", "1m30s", "--env", "A=1", "--env",   "B=x=y", "--env",
       "C=",  "--cwd",    "/mnt/a", "--user",    "root",  "--tty", "--",  "sh",      "-c",    "echo --ro"});
  ASSERT_EQ(run.guest.grants.size(), 3u);
  EXPECT_EQ(run.guest.grants[0].path, "/a");
  EXPECT_EQ(run.guest.grants[0].mode, mounts::Mode::rw);
  EXPECT_EQ(run.guest.grants[1].path, "/b");
  EXPECT_EQ(run.guest.grants[1].mode, mounts::Mode::ro);
  EXPECT_EQ(run.guest.grants[2].path, "/c");
  EXPECT_EQ(run.guest.image, "full");
  EXPECT_EQ(run.guest.cpus, 4u);
  EXPECT_EQ(run.guest.memory, ByteSize::gib(3));
  EXPECT_EQ(run.timeout, std::chrono::seconds(90));
  EXPECT_EQ(run.environment,
            (std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B", "x=y"}, {"C", ""}}));
  EXPECT_EQ(run.working_directory, "/mnt/a");
  EXPECT_EQ(run.user, "root");
  EXPECT_TRUE(run.tty);
  EXPECT_EQ(run.argv, (Words{"sh", "-c", "echo --ro"}));
}

TEST(Arguments, GrantsOfEveryModeStayInTheirOrder) {
  const Words grants{"--rw-no-delete", "/a", "--ro", "/b", "--rw-no-delete", "/c", "--rw", "/d"};
  Words run{"run"}, task{"task", "Tidy up"};
  run.insert(run.end(), grants.begin(), grants.end());
  task.insert(task.end(), grants.begin(), grants.end());
  run.insert(run.end(), {"--", "ls"});
  for (const auto& guest : {command<RunCommand>(run).guest, command<TaskCommand>(task).guest}) {
    ASSERT_EQ(guest.grants.size(), 4u);
    const mounts::Mode modes[] = {mounts::Mode::rw_no_delete, mounts::Mode::ro, mounts::Mode::rw_no_delete,
                                  mounts::Mode::rw};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(guest.grants[i].path, std::string("/") + static_cast<char>('a' + i));
      EXPECT_EQ(guest.grants[i].mode, modes[i]);
    }
  }
}

TEST(Arguments, LimitsOfGrantedFolders) {
  Words limits{
      "--bulk-limit", "0", "--write-limit", "2G", "--file-limit", "10", "--refuse-escaping-symlinks"};
  Words run{"run"}, task{"task", "Tidy up"};
  run.insert(run.end(), limits.begin(), limits.end());
  task.insert(task.end(), limits.begin(), limits.end());
  run.insert(run.end(), {"--", "ls"});
  for (const auto& guest : {command<RunCommand>(run).guest, command<TaskCommand>(task).guest}) {
    EXPECT_EQ(guest.bulk_limit, 0u);
    EXPECT_EQ(guest.write_limit, ByteSize::gib(2));
    EXPECT_EQ(guest.file_limit, 10u);
    EXPECT_TRUE(guest.refuse_escaping_symlinks);
  }
  auto usual = command<RunCommand>({"run", "--", "ls"}).guest;
  EXPECT_EQ(usual.bulk_limit, std::nullopt);
  EXPECT_EQ(usual.write_limit.bytes, 0u);
  EXPECT_EQ(usual.file_limit, 0u);
  EXPECT_FALSE(usual.refuse_escaping_symlinks);
  EXPECT_FALSE(parse_arguments({"run", "--write-limit", "0", "--", "ls"}));
  EXPECT_FALSE(parse_arguments({"run", "--file-limit", "0", "--", "ls"}));
  EXPECT_TRUE(command<SessionsCommand>({"sessions", "rm", "--forget-undo", "x"}).forget_undo);
}

TEST(Arguments, WhatFollowsTheDashesIsTheCommands) {
  for (const Words& words : {Words{"--help"}, Words{"-v", "--json"}, Words{"--"}, Words{"a", "--", "b"},
                             Words{"a", "", " "}, Words{"run", "--rw"}}) {
    Words argv{"run", "--"};
    argv.insert(argv.end(), words.begin(), words.end());
    EXPECT_EQ(command<RunCommand>(argv).argv, words);
  }
}

TEST(Arguments, DefaultsAreLeftOpen) {
  auto run = command<RunCommand>({"run", "--", "true"});
  EXPECT_EQ(run.guest.image, "base");
  EXPECT_EQ(run.guest.cpus, 0u);
  EXPECT_EQ(run.guest.memory.bytes, 0u);
  EXPECT_FALSE(run.timeout);
  EXPECT_FALSE(run.tty);
  auto arguments = parsed({"run", "--", "true"});
  EXPECT_FALSE(arguments.json);
  EXPECT_FALSE(arguments.verbose);
}

TEST(Arguments, Tasks) {
  auto task = command<TaskCommand>({"task", "Add it up", "--rw", "/a", "--model", "openai:llama",
                                    "--base-url", "http://127.0.0.1/v1", "--key-file", "/k", "--max-turns",
                                    "9", "--max-time", "30m", "--json"});
  EXPECT_EQ(task.prompt, "Add it up");
  EXPECT_EQ(task.model, "openai:llama");
  EXPECT_EQ(task.base_url, "http://127.0.0.1/v1");
  EXPECT_EQ(task.key_file, "/k");
  EXPECT_EQ(task.max_turns, 9u);
  EXPECT_EQ(task.max_time, std::chrono::minutes(30));
  EXPECT_EQ(command<TaskCommand>({"task", "--file", "/wish", "--model", "anthropic:x"}).prompt_file, "/wish");
  EXPECT_EQ(command<TaskCommand>({"task", "--model", "scripted:/s"}).model, "scripted:/s");
}

TEST(Arguments, JsonAndVerboseWorkAnywhereTheyMakeSense) {
  for (const Words& argv :
       {Words{"task", "x", "--model", "scripted:/s", "--json"}, Words{"sessions", "--json"},
        Words{"sessions", "list", "--json"}, Words{"sessions", "show", "a", "--json"},
        Words{"events", "verify", "--json"}, Words{"events", "--json"}, Words{"image", "list", "--json"},
        Words{"doctor", "--json"}})
    EXPECT_TRUE(parsed(argv).json) << argv[0];
  EXPECT_TRUE(parsed({"-v", "sessions"}).verbose);
  EXPECT_TRUE(parsed({"sessions", "list", "--verbose"}).verbose);
  EXPECT_FALSE(parse_arguments({"run", "--json", "--", "true"}));
}

TEST(Arguments, SessionsEventsImages) {
  using Sessions = SessionsCommand::Action;
  EXPECT_EQ(command<SessionsCommand>({"sessions"}).action, Sessions::list);
  EXPECT_EQ(command<SessionsCommand>({"sessions", "rm", "abc"}).action, Sessions::remove);
  auto stop = command<SessionsCommand>({"sessions", "stop", "abc", "--force"});
  EXPECT_EQ(stop.action, Sessions::stop);
  EXPECT_EQ(stop.id, "abc");
  EXPECT_TRUE(stop.force);
  EXPECT_EQ(command<SessionsCommand>({"sessions", "resume", "abc", "--base-url", "http://x"}).base_url,
            "http://x");
  auto resume = command<SessionsCommand>(
      {"sessions", "resume", "abc", "--max-turns", "9", "--max-time", "2h", "--model", "openai:x"});
  EXPECT_EQ(resume.max_turns, 9u);
  EXPECT_EQ(resume.max_time, std::chrono::hours(2));
  EXPECT_EQ(resume.model, "openai:x");
  auto grant = command<SessionsCommand>(
      {"sessions", "grant", "abc", "--rw", "/a", "--rw-no-delete", "/b", "--ro", "/c", "--rw", "/d"});
  EXPECT_EQ(grant.action, Sessions::grant);
  EXPECT_EQ(grant.id, "abc");
  ASSERT_EQ(grant.grants.size(), 4u);
  const mounts::Mode modes[] = {mounts::Mode::rw, mounts::Mode::rw_no_delete, mounts::Mode::ro,
                                mounts::Mode::rw};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(grant.grants[i].path, std::string("/") + static_cast<char>('a' + i));
    EXPECT_EQ(grant.grants[i].mode, modes[i]);
  }

  using Events = EventsCommand::Action;
  auto list =
      command<EventsCommand>({"events", "list", "--session", "s", "--task", "t", "--name", "anchorhold.vm",
                              "--severity", "warn", "--after", "7", "--limit", "3", "--since", "2h"});
  EXPECT_EQ(list.action, Events::list);
  EXPECT_EQ(list.filter.session, "s");
  EXPECT_EQ(list.filter.task, "t");
  EXPECT_EQ(list.filter.name_prefix, "anchorhold.vm");
  EXPECT_EQ(list.filter.at_least, events::Severity::warn);
  EXPECT_EQ(list.filter.after, 7);
  EXPECT_EQ(list.filter.newest, 3u);
  EXPECT_TRUE(list.filter.since);
  EXPECT_EQ(command<EventsCommand>({"events", "follow"}).action, Events::follow);
  // Longer ago than the clock can say.
  auto ever = command<EventsCommand>({"events", "list", "--since", "100000000d"}).filter.since;
  EXPECT_LT(ever.value(), std::chrono::system_clock::now() - std::chrono::hours(24 * 3600));
  EXPECT_GT(ever.value(), std::chrono::system_clock::time_point());
  std::string hash(64, 'a');
  auto verify = command<EventsCommand>({"events", "verify", "--head", "12:" + hash});
  ASSERT_TRUE(verify.head);
  EXPECT_EQ(verify.head->sequence, 12);
  EXPECT_EQ(verify.head->hash, hash);

  using Image = ImageCommand::Action;
  EXPECT_EQ(command<ImageCommand>({"image"}).action, Image::list);
  EXPECT_EQ(command<ImageCommand>({"image", "build", "full", "--refresh"}).name, "full");
  EXPECT_EQ(command<ImageCommand>({"image", "build"}).action, Image::build);
  EXPECT_EQ(command<ImageCommand>({"image", "gc"}).action, Image::collect_garbage);
  EXPECT_EQ(command<DoctorCommand>({"doctor", "--image", "full"}).guest.image, "full");
}

TEST(Arguments, FaultsSayWhatAndWhereToLook) {
  struct Fault {
    Words argv;
    const char* says;
    const char* look;
  };
  const std::vector<Fault> faults{
      {{}, "subcommand", "anchorhold --help"},
      {{"runn"}, "'runn'", "anchorhold --help"},
      {{"run", "ls"}, "ls", "anchorhold run --help"},
      {{"run"}, "needs a command", "anchorhold run --help"},
      {{"run", "--"}, "needs a command", "anchorhold run --help"},
      {{"run", "--", ""}, "needs a command", "anchorhold run --help"},
      {{"run", "--ro"}, "--ro", "anchorhold run --help"},
      {{"run", "--nonsense", "--", "x"}, "nonsense", "anchorhold run --help"},
      {{"run", "--cpus", "65", "--", "x"}, "65", "anchorhold run --help"},
      {{"run", "--cpus", "-1", "--", "x"}, "-1", "anchorhold run --help"},
      {{"run", "--memory", "5Q", "--", "x"}, "5Q", "anchorhold run --help"},
      {{"run", "--memory", "0", "--", "x"}, "not possible", "anchorhold run --help"},
      {{"run", "--memory", "1", "--", "x"}, "not possible", "anchorhold run --help"},
      {{"run", "--memory", "100000001", "--", "x"}, "whole number", "anchorhold run --help"},
      {{"task", "x", "--memory", "100T"}, "not possible", "anchorhold task --help"},
      {{"run", "--timeout", "-3s", "--", "x"}, "-3s", "anchorhold run --help"},
      {{"run", "--timeout", "0", "--", "x"}, "no limit", "anchorhold run --help"},
      {{"run", "--timeout", "200000d", "--", "x"}, "ten years", "anchorhold run --help"},
      {{"task", "x", "--max-time", "0s"}, "no limit", "anchorhold task --help"},
      {{"sessions", "resume", "abc", "--max-time", "0ms"}, "no limit", "anchorhold sessions resume --help"},
      {{"run", "--env", "A", "--", "x"}, "'A'", "anchorhold run --help"},
      {{"task"}, "needs a wish", "anchorhold task --help"},
      {{"task", "x", "--file", "y"}, "--file", "anchorhold task --help"},
      {{"task", "x", "--model", "gpt"}, "'gpt'", "anchorhold task --help"},
      {{"task", "x", "--model", "anthropic:"}, "anthropic:", "anchorhold task --help"},
      {{"task", "x", "--max-turns", "0"}, "0", "anchorhold task --help"},
      {{"task", "x", "--", "y"}, "only run", "anchorhold task --help"},
      {{"sessions", "show"}, "id", "anchorhold sessions show --help"},
      {{"sessions", "grant", "abc"}, "needs a folder", "anchorhold sessions grant --help"},
      {{"sessions", "grant", "abc", "--ro"}, "--ro", "anchorhold sessions grant --help"},
      {{"sessions", "resume", "abc", "--model", "gpt"}, "'gpt'", "anchorhold sessions resume --help"},
      {{"sessions", "resume", "abc", "--max-turns", "0"}, "0", "anchorhold sessions resume --help"},
      {{"sessions", "explode"}, "explode", "anchorhold sessions --help"},
      {{"events", "list", "--severity", "terrible"}, "terrible", "anchorhold events list --help"},
      {{"events", "list", "--since", "yesterday"}, "yesterday", "anchorhold events list --help"},
      {{"events", "verify", "--head", "1:xyz"}, "1:xyz", "anchorhold events verify --help"},
      {{"events", "verify", "--head", "0:" + std::string(64, 'a')},
       "--head",
       "anchorhold events verify --help"},
      {{"image", "rm"}, "name", "anchorhold image rm --help"},
  };
  for (const auto& fault : faults) {
    std::string line;
    for (const auto& word : fault.argv) line += word + " ";
    SCOPED_TRACE(line);
    auto result = parse_arguments(fault.argv);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(result.error().message.find(fault.says), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().hint.find(fault.look), std::string::npos) << result.error().hint;
  }
}

// An unset variable of a script must not stand for all, or for what is usual.
TEST(Arguments, NothingIsNamedByAnEmptyWord) {
  const std::vector<std::pair<Words, const char*>> empty{
      {{"sessions", "show", ""}, "id"},
      {{"sessions", "stop", ""}, "id"},
      {{"sessions", "resume", ""}, "id"},
      {{"sessions", "resume", "abc", "--key-file", ""}, "--key-file"},
      {{"sessions", "rm", ""}, "id"},
      {{"sessions", "grant", "", "--ro", "/a"}, "id"},
      {{"sessions", "grant", "abc", "--ro", ""}, "--ro"},
      {{"changes", ""}, "id"},
      {{"changes", "abc", ""}, "path"},
      {{"undo", ""}, "id"},
      {{"undo", "abc", "a", ""}, "path"},
      {{"events", "list", "--session", ""}, "--session"},
      {{"events", "list", "--session="}, "--session"},
      {{"events", "list", "--session=", "--json"}, "--session"},
      {{"events", "follow", "--task", ""}, "--task"},
      {{"egress", "rules", "--session", ""}, "--session"},
      {{"egress", "explain", ""}, "host"},
      {{"egress", "answer", "", "once"}, "question"},
      {{"egress", "forget", ""}, "rule"},
      {{"credential", "add", ""}, "name"},
      {{"credential", "rm", ""}, "name"},
      {{"credential", "add", "x", "--header", ""}, "--header"},
      {{"image", "build", ""}, "name"},
      {{"image", "verify", ""}, "name"},
      {{"image", "rm", ""}, "name"},
      {{"doctor", "--image", ""}, "--image"},
      {{"task", ""}, "prompt"},
      {{"task", "x", "--model", ""}, "--model"},
      {{"run", "--rw", "/a", "--rw", "", "--", "x"}, "--rw"},
      {{"run", "--user", "", "--", "x"}, "--user"},
      {{"run", "--cwd=", "--", "x"}, "--cwd"},
      {{"run", "--image=", "--", "x"}, "--image"},
  };
  for (const auto& [argv, name] : empty) {
    std::string line;
    for (const auto& word : argv) line += "'" + word + "' ";
    SCOPED_TRACE(line);
    auto result = parse_arguments(argv);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message, std::string(name) + " is empty");
    EXPECT_NE(result.error().hint.find(argv[0]), std::string::npos) << result.error().hint;
  }
}

TEST(Arguments, HelpIsText) {
  for (const Words& argv :
       {Words{"--help"}, Words{"run", "--help"}, Words{"events", "verify", "-h"}, Words{"--version"}}) {
    auto result = parse_arguments(argv);
    ASSERT_TRUE(result);
    ASSERT_TRUE(std::holds_alternative<HelpText>(*result));
    EXPECT_FALSE(std::get<HelpText>(*result).text.empty());
  }
}

}  // namespace
}  // namespace anchorhold::cli
