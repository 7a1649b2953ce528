// A guest's way to the network, from programs in it to a server in a network of the test's own, and what is
// refused there.
#include <signal.h>
#include <unistd.h>

#include "task_fixture.h"

namespace anchorhold::cli {
namespace {

class NetworkTest : public TaskTest {
 protected:
  void make_site() {
    auto site = folder("bed") / "site";
    std::filesystem::create_directories(site);
    write_text(site / "hello", "hello from outside");
    auto made = run_program(
        {"/bin/sh", "-ec",
         "cd \"$1\"; git init -q work; cd work; echo from git > file; git add file; git -c user.name=t -c "
         "user.email=t@t commit -qm x; cd ..; git clone -q --bare work repository.git; cd repository.git; "
         "git "
         "update-server-info",
         "sh", site.string()});
    ASSERT_EQ(made.status, 0) << made.err;
  }
};

TEST_F(NetworkTest, ProgramsReachWhatIsAllowedInEveryWayAndNothingElse) {
  ANCHORHOLD_NEEDS_IMAGE();
  ANCHORHOLD_NEEDS_NETWORK();
  make_site();
  auto scripts = folder("scripts");
  std::filesystem::copy_file(source("cli/network/in_guest"), scripts / "in_guest");
  auto outcome = run_in_bed({program(), "run", "--image", image_, "--ro", scripts, "--allow", "site.test:80",
                             "--allow", "44.128.0.2:80", "--env", "HTTPS_PROXY=http://127.0.0.1:9", "--",
                             "bash", "/mnt/scripts/in_guest"});
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  for (const char* line :
       {"proxy-curl: hello from outside", "proxy-python: hello from outside", "proxy-git: from git",
        "bare-curl: hello from outside", "bare-python: hello from outside", "bare-git: from git",
        "bare-address: hello from outside", "socks-name: hello from outside",
        "socks-address: hello from outside", "denied-proxy: 403", "denied-bare: 403", "denied-socks: 97",
        "denied-port: reset", "lookup: True", "udp: ConnectionRefusedError", "own-env:  http://127.0.0.1:9--",
        "authority: 1 -----END CERTIFICATE-----"})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << "\n" << outcome.out;
  // Nobody outside was ever asked for the name that was denied.
  const std::string queries = read_text(folder("bed") / "queries");
  EXPECT_NE(queries.find("site.test"), std::string::npos);
  EXPECT_EQ(queries.find("other"), std::string::npos) << queries;
  auto events = run({"events", "list", "--name", "anchorhold.egress", "--json"});
  int allowed = 0, denied = 0;
  for (const auto& event : objects(events.out)) {
    allowed += event.dump().find("anchorhold.egress.allow") != std::string::npos;
    denied += event.dump().find("anchorhold.egress.deny") != std::string::npos;
  }
  EXPECT_GE(allowed, 9);
  EXPECT_GE(denied, 4);
}

TEST_F(NetworkTest, ADeadEgressProcessIsReportedAndReplacedAndTheGuestTrustsTheNewOne) {
  ANCHORHOLD_NEEDS_IMAGE();
  ANCHORHOLD_NEEDS_NETWORK();
  make_site();
  const std::string script =
      "old=$(cat $NODE_EXTRA_CA_CERTS); curl -s http://site.test/hello && echo; echo ready; read line; "
      "until curl -sf http://site.test/hello; do sleep 0.2; done; "
      "while [ \"$old\" = \"$(cat $NODE_EXTRA_CA_CERTS)\" ]; do sleep 0.2; done; echo; echo another";
  auto running = start_in_bed({program(), "run", "--image", image_, "--allow", "site.test:80", "--timeout",
                               "3m", "--", "sh", "-c", script});
  running.read_until("ready\n");
  pid_t egress = process_named("anchorhold-egressd");
  ASSERT_GT(egress, 0);
  ASSERT_EQ(kill(egress, SIGKILL), 0);
  running.write_input("\n");
  running.close_input();
  auto outcome = running.finish();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "hello from outside\nready\nhello from outside\nanother\n");
  auto events = run({"events", "list", "--name", "anchorhold.egress.fail", "--json"});
  EXPECT_EQ(objects(events.out).size(), 1u) << events.out;
}

TEST_F(NetworkTest, QuestionsAreAnsweredFromElsewhereAndChangedRulesHoldAtOnce) {
  ANCHORHOLD_NEEDS_IMAGE();
  ANCHORHOLD_NEEDS_NETWORK();
  make_site();
  auto asked = folder("asked");
  std::filesystem::create_directories(asked / "guest");
  std::filesystem::copy_file(source("cli/network/asks"), asked / "guest/asks");
  auto outcome = run_in_bed({"/bin/bash", source("cli/network/asked"), program(), image_, asked.string()});
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  for (const char* line : {"\"subject\":\"site.test:80\"",
                           "\"about\":\"GET /hello\"",
                           "\"running\":\"bash /mnt/guest/asks\"",
                           "\"answers\":[\"deny\",\"once\",\"session\",\"always\",\"never\"]",
                           "now: GET /hello",
                           ": once status 0",
                           "late: error: question",
                           "has its answer: allow_once, by another program",
                           "status 125",
                           ": always status 0",
                           "explain: site.test:80 is understood as site.test:80",
                           "answers.toml:",
                           "session-explain: ",
                           ": session status 0",
                           "forget: forgotten: allow  site.test:80",
                           "run: 0",
                           "network   allow  44.128.0.2:80  answered",
                           "first: hello from outside 200",
                           "second: hello from outside 200",
                           "third: hello from outside 200",
                           "by address: hello from outside 200",
                           "cut: yes",
                           "ruled: hello from outside 200",
                           "again cut: yes",
                           "broken: 403",
                           "mended: hello from outside 200",
                           "err:   not asked any more",
                           "err: config.toml:5: unknown key 'nonsense'"})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << "\n" << outcome.out;
  auto cut = run({"events", "list", "--name", "anchorhold.egress.deny", "--json"});
  EXPECT_NE(cut.out.find("\"egress.cut\":true"), std::string::npos) << cut.out;
  auto rejected = run({"events", "list", "--name", "anchorhold.policy.reject", "--json"});
  EXPECT_NE(rejected.out.find("config.toml:5"), std::string::npos) << rejected.out;
}

// The first turn runs out; what was allowed for the session holds when it goes on.
TEST_F(NetworkTest, AResumedTaskHasItsRulesAgain) {
  ANCHORHOLD_NEEDS_IMAGE();
  ANCHORHOLD_NEEDS_NETWORK();
  make_site();
  auto work = folder("work");
  auto get = [](const std::string& file) {
    return shell("curl -s http://site.test/hello > /mnt/work/" + file);
  };
  auto model = script({{get("first")}, {get("second")}, {words("Done.")}});
  auto outcome = run_in_bed({program(), "task", "--image", image_, "--rw", work, "--allow", "site.test:80",
                             "--deny", "bad.test", "--max-turns", "1", "--model", model, "Go on"});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_EQ(read_text(work / "first"), "hello from outside") << outcome.err;
  std::string id = objects(run({"sessions", "--json"}).out).at(0).at("id");
  auto explained = run({"egress", "explain", "site.test:80", "--session", id});
  EXPECT_EQ(explained.status, 0) << explained.out;
  EXPECT_NE(explained.out.find("--allow site.test:80"), std::string::npos) << explained.out;
  outcome = run_in_bed({program(), "sessions", "resume", id, "--max-turns", "9"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(read_text(work / "second"), "hello from outside") << outcome.err;
  auto shown = objects(run({"sessions", "show", id, "--json"}).out).at(0);
  EXPECT_EQ(shown.at("network").size(), 2u);
  EXPECT_EQ(shown.at("network")[1].at("host"), "bad.test");
}

// By the same decision as the guest's requests, and without a guest.
TEST_F(NetworkTest, ATaskReadsPagesOfTheWebAsItsGuestMay) {
  make_site();
  ANCHORHOLD_NEEDS_NETWORK();
  write_text(folder("bed") / "site/page.html",
             "<title>Prices</title><p>One costs <b>two</b>.<script>no()</script>");
  write_text(folder("bed") / "site/image.png", "PNG");
  auto fetch = [](const std::string& url) { return call("fetch_url", {{"url", url}}); };
  auto model = script({{fetch("http://site.test/page.html"), fetch("http://other.test/"),
                        fetch("http://site.test/image.png"), fetch("http://169.254.169.254/")},
                       {words("Done.")}});
  auto outcome = run_in_bed({program(), "task", "--image", "no-such-image", "--allow", "site.test:80",
                             "--json", "--model", model, "What does one cost?"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  auto ended = of_type(objects(outcome.out), "tool_result");
  ASSERT_EQ(ended.size(), 4u) << outcome.out;
  EXPECT_NE(ended[0].dump().find("Title: Prices"), std::string::npos) << ended[0];
  EXPECT_NE(ended[0].dump().find("One costs two."), std::string::npos) << ended[0];
  EXPECT_NE(ended[1].dump().find("no rule names other.test:80"), std::string::npos) << ended[1];
  EXPECT_NE(ended[2].dump().find("it is no text but image/png"), std::string::npos) << ended[2];
  EXPECT_NE(ended[3].dump().find("no rule names 169.254.169.254:80"), std::string::npos) << ended[3];
  auto events = run({"events", "list", "--name", "anchorhold.egress", "--json"}).out;
  EXPECT_NE(events.find("anchorhold.egress.allow"), std::string::npos);
  EXPECT_NE(events.find("other.test"), std::string::npos);
}

TEST_F(NetworkTest, ABrokenConfigurationOpensNothingAndSaysWhere) {
  write_text(home() / "config/anchorhold/config.toml", "[egress]\ndefault = \"allow\"\n");
  auto outcome = run({"run", "--allow", "site.test", "--", "true"});
  EXPECT_EQ(outcome.status, 125);
  EXPECT_NE(outcome.err.find("2"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("default"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace anchorhold::cli
