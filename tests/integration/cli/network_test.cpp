// A guest's way to the network, from programs in it to a server in a network of the test's own, and what is
// refused there.
#include <signal.h>
#include <unistd.h>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

class NetworkTest : public CliTest {
 protected:
  // In new namespaces, with the servers of network/bed.
  Running start_in_bed(std::vector<std::string> argv) {
    std::vector<std::string> words{"/usr/bin/env", "unshare", "--net",        "--mount",
                                   "--pid",        "--fork",  "--kill-child", "--mount-proc"};
    if (geteuid() != 0) words.insert(words.end(), {"--user", "--map-root-user"});
    words.insert(words.end(), {beside("bed"), folder("bed").string()});
    words.insert(words.end(), argv.begin(), argv.end());
    return start_program(words);
  }
  bool have_namespaces() {
    auto running = start_in_bed({"true"});
    running.close_input();
    auto outcome = running.finish();
    if (outcome.status != 0) why_ = outcome.err;
    return outcome.status == 0;
  }
  static std::string beside(const std::string& name) {
    return std::string(ANCHORHOLD_SOURCE_DIR) + "/tests/integration/cli/network/" + name;
  }
  void make_site() {
    auto site = folder("bed") / "site";
    std::filesystem::create_directories(site);
    write_text(site / "hello", "hello from outside");
    auto running = start_program(
        {"/bin/sh", "-ec",
         "cd \"$1\"; git init -q work; cd work; echo from git > file; git add file; git -c user.name=t -c "
         "user.email=t@t commit -qm x; cd ..; git clone -q --bare work repository.git; cd repository.git; "
         "git "
         "update-server-info",
         "sh", site.string()});
    running.close_input();
    auto made = running.finish();
    ASSERT_EQ(made.status, 0) << made.err;
  }

  std::string why_;
};

TEST_F(NetworkTest, ProgramsReachWhatIsAllowedInEveryWayAndNothingElse) {
  ANCHORHOLD_NEEDS_IMAGE();
  if (!have_namespaces()) GTEST_SKIP() << "no network of one's own here: " << why_;
  make_site();
  auto scripts = folder("scripts");
  std::filesystem::copy_file(beside("in_guest"), scripts / "in_guest");
  auto running = start_in_bed({program(), "run", "--image", image_, "--ro", scripts, "--allow",
                               "site.test:80", "--allow", "44.128.0.2:80", "--env",
                               "HTTPS_PROXY=http://127.0.0.1:9", "--", "bash", "/mnt/scripts/in_guest"});
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  for (const char* line :
       {"proxy-curl: hello from outside", "proxy-python: hello from outside", "proxy-git: from git",
        "bare-curl: hello from outside", "bare-python: hello from outside", "bare-git: from git",
        "bare-address: hello from outside", "socks-name: hello from outside",
        "socks-address: hello from outside", "denied-proxy: 403", "denied-bare: 403", "denied-socks: 97",
        "denied-port: 56", "lookup: True", "udp: ConnectionRefusedError", "own-env:  http://127.0.0.1:9--",
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
  if (!have_namespaces()) GTEST_SKIP() << "no network of one's own here: " << why_;
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

TEST_F(NetworkTest, ABrokenConfigurationOpensNothingAndSaysWhere) {
  write_text(home() / "config/anchorhold/config.toml", "[egress]\ndefault = \"allow\"\n");
  auto outcome = run({"run", "--allow", "site.test", "--", "true"});
  EXPECT_EQ(outcome.status, 125);
  EXPECT_NE(outcome.err.find("2"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("default"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace anchorhold::cli
