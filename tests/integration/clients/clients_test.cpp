// What a guest reaches and does not reach, seen from programs in it: the clients that people use, each in
// three ways; every way out that must not be one; and what happens when something breaks.
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <signal.h>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string host_proxy = "http://user:hosts-proxy-password@127.0.0.1:9";

long resident_kib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  return 0;
}

class ClientsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ANCHORHOLD_NEEDS_IMAGE();
    const char* tree = std::getenv("ANCHORHOLD_TEST_PROGRAMS");
    if (!tree || !std::filesystem::exists(std::filesystem::path(tree) / "usr/bin/go-client"))
      GTEST_SKIP() << "ANCHORHOLD_TEST_PROGRAMS names no folder of programs (tools/lib/guest-programs): no "
                      "client is tried";
    tree_ = tree;
    auto running =
        start_in_private_network({"ip", "link", "add", "near", "type", "veth", "peer", "name", "far"});
    running.close_input();
    auto outcome = running.finish();
    if (outcome.status != 0) GTEST_SKIP() << "no network of one's own here: " << outcome.err;
  }
  void TearDown() override {
    if (!IsSkipped()) CliTest::TearDown();
  }

  static std::string beside(const std::string& name) {
    return std::string(ANCHORHOLD_SOURCE_DIR) + "/tests/integration/clients/" + name;
  }
  // The bed's network, where this host has a proxy of its own for everything but the bed.
  Running start_in_bed(const std::vector<std::string>& argv) {
    std::vector<std::string> words{beside("bed"), folder("bed").string()};
    words.insert(words.end(), argv.begin(), argv.end());
    return start_in_private_network(
        words,
        {{"CLIENT_TREE", tree_}, {"https_proxy", host_proxy}, {"no_proxy", "test,44.128.0.0/16,::/0"}});
  }
  // A guest with the brought programs and this folder's, and what is run in it as root.
  Running start_guest(const std::string& rules, const std::string& command) {
    write_text(home() / "config/anchorhold/config.toml",
               fmt::format("[egress]\ndefault = \"deny\"\nextra_ca = [\"{}\"]\n{}",
                           (folder("bed") / "ca.pem").string(), rules));
    // The agent writes below /usr as well.
    const std::string begin = fmt::format(
        "tree=/mnt/{}; mkdir /run/over && mount -t tmpfs tmpfs /run/over && mkdir /run/over/upper "
        "/run/over/work && "
        "mount -t overlay overlay -o lowerdir=/usr:$tree/usr,upperdir=/run/over/upper,workdir=/run/over/work "
        "/usr "
        "|| exit; ",
        std::filesystem::path(tree_).filename().string());
    return start_in_bed({program(), "run", "--image", image_, "--user", "root", "--cpus", "2", "--memory",
                         "3G", "--ro", tree_, "--ro", beside("guest"), "--", "bash", "-c", begin + command});
  }
  // Nothing came to the other machine but TCP and questions about names, and those only about names that a
  // rule allows.
  void expect_no_leak() {
    std::istringstream packets(read_text(folder("bed") / "packets"));
    for (std::string line; std::getline(packets, line);)
      EXPECT_EQ(line, "protocol 17 to 44.128.0.53 port 53");
    std::istringstream queries(read_text(folder("bed") / "queries"));
    int asked = 0;
    for (std::string line; std::getline(queries, line); ++asked)
      EXPECT_TRUE(line.ends_with("site.test") || line.ends_with("open.test")) << line;
    EXPECT_GT(asked, 0);
  }

  std::string tree_;
};

const char* const all_open = R"(
[[egress.rule]]
host = "site.test"
action = "allow"
[[egress.rule]]
host = "*.site.test"
action = "allow"
[[egress.rule]]
host = "open.test"
action = "allow"
paths = ["/*"]
[[egress.rule]]
host = "*.open.test"
action = "allow"
paths = ["/*"]
)";

TEST_F(ClientsTest, WorkWithTheProxyWithoutAnySettingsAndOpened) {
  auto running = start_guest(all_open, "exec python3 /mnt/guest/clients.py $tree");
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  std::map<std::string, std::map<std::string, bool>> seen;
  std::vector<std::string> order;
  for (const auto& result : objects(outcome.out)) {
    const std::string client = result.at("client"), way = result.at("way");
    if (!seen.contains(client)) order.push_back(client);
    seen[client][way] = result.at("works");
    EXPECT_TRUE(result.at("works")) << client << ", " << way << ": " << result.dump(1);
    const std::string authority = way == "opened" ? "Anchorhold session" : "Authority of the bed";
    if (client == "who vouches") {
      EXPECT_THAT(result.at("output").get<std::string>(), HasSubstr(authority));
    }
  }
  EXPECT_GE(order.size(), 24u);
  // The table in the documents is this one.
  const std::string documented = read_text(std::string(ANCHORHOLD_SOURCE_DIR) + "/docs/egress.md");
  for (const auto& client : order) {
    if (client == "who vouches") continue;
    auto word = [&](const char* way) { return seen[client][way] ? "yes" : "no"; };
    const std::string row =
        fmt::format("| {} | {} | {} | {} |", client, word("proxy"), word("redirect"), word("opened"));
    EXPECT_THAT(documented, HasSubstr(row));
  }
  expect_no_leak();
}

const char* const narrow = R"(
[[egress.rule]]
host = "*.site.test"
action = "allow"
[[egress.rule]]
host = "site.test"
action = "allow"
[[egress.rule]]
host = "open.test"
action = "allow"
methods = ["GET", "POST"]
paths = ["/hello", "/socket", "/git/*"]
deny_headers = ["x-fetch-url"]
[[egress.rule]]
host = "*.open.test"
action = "allow"
paths = ["/*"]
)";

TEST_F(ClientsTest, NoWayOutIsLeftToRootInTheGuest) {
  auto running = start_guest(narrow, "exec python3 /mnt/guest/refusals.py $tree");
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  std::string recorded;
  for (const auto& event : objects(run({"events", "list", "--name", "anchorhold.egress.deny", "--json"}).out))
    recorded += event.dump() + "\n";
  int attempts = 0;
  for (const auto& result : objects(outcome.out)) {
    ++attempts;
    EXPECT_THAT(result.at("told").get<std::string>(), HasSubstr(result.at("expected").get<std::string>()))
        << result.dump(1);
    const std::string event = nlohmann::json(result.at("event")).dump();
    EXPECT_THAT(recorded, HasSubstr(event.substr(1, event.size() - 2))) << result.dump(1);
  }
  EXPECT_GE(attempts, 140);
  expect_no_leak();
}

TEST_F(ClientsTest, FaultsEndOneConnectionAndNothingGrows) {
  // With ANCHORHOLD_LONG_TESTS set, 2 GiB in each direction.
  const std::uint64_t bytes = std::getenv("ANCHORHOLD_LONG_TESTS") ? 2ull << 30 : 128ull << 20;
  auto running = start_guest(all_open, fmt::format("exec bash /mnt/guest/faults.sh {}", bytes));
  auto await = [&](const std::string& name) { running.read_until("now " + name + "\n"); };
  await("at rest");
  const pid_t egress = process_named("anchorhold-egressd");
  ASSERT_GT(egress, 0);
  const long at_rest = resident_kib(egress);
  running.write_input("\n");
  const std::pair<const char*, long> most[] = {{"many idle", 900 * 40},
                                               {"many unfinished heads", 900 * 40},
                                               {"never reads", 16 << 10},
                                               {"large", 16 << 10}};
  long before = at_rest;
  for (const auto& [name, kib] : most) {
    await(name);
#ifndef ANCHORHOLD_SANITIZED
    EXPECT_LT(resident_kib(egress) - before, kib) << name;
#endif
    before = resident_kib(egress);
    running.write_input("\n");
  }
  await("flowing");
  ASSERT_EQ(kill(egress, SIGKILL), 0);
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  const std::string greeting = "hello from outside";
  for (const std::string& line : {std::string("expired, tunnelled: 000 exit 60"),
                                  std::string("expired, opened: 502 exit 0"),
                                  std::string("another's, tunnelled: 000 exit 60"),
                                  std::string("another's, opened: 502 exit 0"),
                                  std::string("reset, tunnelled: 200 exit "),
                                  std::string("reset, opened: 200 exit "),
                                  "IPv6 only: " + greeting,
                                  std::string("no name server: 502 exit 0"),
                                  std::string("redirect to a denied host: "),
                                  "clock behind: " + greeting,
                                  "clock ahead: " + greeting,
                                  "half-closed: " + greeting,
                                  std::string("slow head: HTTP/1.1 200 OK"),
                                  "many idle: " + greeting,
                                  "many unfinished heads: " + greeting,
                                  "never reads: " + greeting,
                                  fmt::format("down: {} ", bytes),
                                  fmt::format("up: {} bytes", bytes),
                                  std::string("cut: exit "),
                                  "after, opened: " + greeting})
    EXPECT_THAT(outcome.out, HasSubstr(line));
  // What was cut is seen to be so.
  for (const char* wrong : {"reset, tunnelled: 200 exit 0", "reset, opened: 200 exit 0", "cut: exit 0",
                            "redirect to a denied host: 200"})
    EXPECT_THAT(outcome.out, Not(HasSubstr(wrong)));
  EXPECT_EQ(objects(run({"events", "list", "--name", "anchorhold.egress.fail", "--json"}).out).size(), 1u);
  expect_no_leak();
}

}  // namespace
}  // namespace anchorhold::cli
