// What a guest reaches and does not reach, seen from programs in it: the clients that people use, each in
// three ways; every way out that must not be one; and what happens when something breaks.
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iostream>
#include <set>
#include <signal.h>

#include "cli_fixture.h"
#include "process_facts.h"

namespace anchorhold::cli {
namespace {

using anchorhold::testing::status_kib;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string host_proxy = "http://user:hosts-proxy-password@127.0.0.1:9";

long resident_kib(pid_t pid) {
  return status_kib(pid, "VmRSS:");
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
    ANCHORHOLD_NEEDS_NETWORK();
  }
  void TearDown() override {
    if (!IsSkipped()) CliTest::TearDown();
  }

  // The bed's network, where this host has a proxy of its own for everything but the bed.
  Running start_in_bed(const std::vector<std::string>& argv) {
    return CliTest::start_in_bed(
        argv, {{"CLIENT_TREE", tree_}, {"https_proxy", host_proxy}, {"no_proxy", "test,44.128.0.0/16,::/0"}},
        "clients/bed");
  }
  // Secrets of the person, which sites with a credential want to see: in the vault, and where the bed reads
  // what it is to expect.
  void keep_secrets() {
    nlohmann::json wanted;
    for (const auto& [kind, secret] : secrets_of_the_person()) {
      wanted[kind] = secret;
      std::vector<std::string> words{"credential", "add", "a-" + kind, "--kind", kind, "--store", "file"};
      if (kind == "basic") words.insert(words.end(), {"--user", "guest"});
      if (kind == "header") words.insert(words.end(), {"--header", "X-Api-Key"});
      ASSERT_EQ(run(words, secret).status, 0);
    }
    write_text(folder("bed") / "secrets.json", wanted.dump());
  }
  static const std::map<std::string, std::string>& secrets_of_the_person() {
    static const std::map<std::string, std::string> secrets{{"bearer", "sk-real-secret-with-a-bearer-1"},
                                                            {"basic", "pw-real-secret-of-a-guest-2"},
                                                            {"header", "hd-real-secret-in-a-header-3"},
                                                            {"git", "gt-real-secret-of-a-forge-4"}};
    return secrets;
  }
  static std::string secrets_backwards() {
    std::string words;
    for (const auto& [kind, secret] : secrets_of_the_person())
      words += std::string(secret.rbegin(), secret.rend()) + " ";
    return words;
  }
  static void expect_no_secret(const std::string& text) {
    for (const auto& [kind, secret] : secrets_of_the_person()) EXPECT_THAT(text, Not(HasSubstr(secret)));
  }

  std::filesystem::path configuration_file() { return home() / "config/anchorhold/config.toml"; }
  std::string configuration(const std::string& rules) {
    return fmt::format("[egress]\ndefault = \"deny\"\nextra_ca = [\"{}\"]\n{}",
                       (folder("bed") / "ca.pem").string(), rules);
  }
  // A guest with the brought programs and this folder's, and what is run in it as root.
  Running start_guest(const std::string& rules, const std::string& command) {
    write_text(configuration_file(), configuration(rules));
    // The agent writes below /usr as well.
    const std::string begin = fmt::format(
        "tree=/mnt/{}; mkdir /run/over && mount -t tmpfs tmpfs /run/over && mkdir /run/over/upper "
        "/run/over/work && "
        "mount -t overlay overlay -o lowerdir=/usr:$tree/usr,upperdir=/run/over/upper,workdir=/run/over/work "
        "/usr "
        "|| exit; ",
        std::filesystem::path(tree_).filename().string());
    return start_in_bed({program(),  "run",
                         "--image",  image_,
                         "--user",   "root",
                         "--cpus",   "2",
                         "--memory", "3G",
                         "--ro",     tree_,
                         "--ro",     source("clients/guest"),
                         "--ro",     source("cli/network/look.py"),
                         "--env",    "LOOK_FOR=" + secrets_backwards(),
                         "--",       "bash",
                         "-c",       begin + command});
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
      EXPECT_TRUE(line.ends_with("site.test") || line.ends_with("open.test") || line == "credential.test" ||
                  line == "x.wild.test")
          << line;
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

const char* const with_credentials = R"(
[[egress.rule]]
host = "site.test"
action = "allow"
[[egress.rule]]
host = "*.site.test"
action = "allow"
[[egress.rule]]
host = "bearer.open.test"
action = "allow"
credential = "a-bearer"
[[egress.rule]]
host = "grpc.open.test"
action = "allow"
credential = "a-bearer"
[[egress.rule]]
host = "basic.open.test"
action = "allow"
credential = "a-basic"
[[egress.rule]]
host = "header.open.test"
action = "allow"
credential = "a-header"
[[egress.rule]]
host = "git.open.test"
action = "allow"
credential = "a-git"
git = { repositories = ["git/*"], operations = ["fetch", "push"], refs = ["refs/heads/*"] }
)";

TEST_F(ClientsTest, WorkWithTheProxyWithoutAnySettingsAndOpenedWithACredential) {
  keep_secrets();
  auto running = start_guest(with_credentials, "exec python3 /mnt/guest/clients.py $tree");
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  const std::set<std::string> of_npm{"npm", "pnpm", "Node undici"};
  const bool with_npm = std::filesystem::is_symlink(std::filesystem::path(tree_) / "usr/bin/npm");
  std::map<std::string, std::map<std::string, bool>> seen;
  std::vector<std::string> order;
  for (const auto& result : objects(outcome.out)) {
    const std::string client = result.at("client"), way = result.at("way");
    if (!with_npm && of_npm.contains(client)) continue;
    if (!seen.contains(client)) order.push_back(client);
    seen[client][way] = result.at("works");
    EXPECT_TRUE(result.at("works")) << client << ", " << way << ": " << result.dump(1);
    const std::string authority = way == "opened" ? "Anchorhold session" : "Authority of the bed";
    if (client == "who vouches") {
      EXPECT_THAT(result.at("output").get<std::string>(), HasSubstr(authority));
    }
  }
  EXPECT_GE(order.size(), with_npm ? 28u : 25u);
  // Each request came with the secret, which nobody saw but the site.
  EXPECT_EQ(read_text(folder("bed") / "refused"), "");
  expect_no_secret(outcome.out + outcome.err);
  const std::string events = run({"events", "list", "--json"}).out;
  expect_no_secret(events);
  EXPECT_THAT(events, HasSubstr("anchorhold.credential.use"));
  // The table in the documents is this one.
  const std::string documented = read_text(std::string(ANCHORHOLD_SOURCE_DIR) + "/docs/egress.md");
  for (const auto& client : order) {
    if (client == "who vouches" || client == "secrets in the guest") continue;
    auto word = [&](const char* way) { return seen[client][way] ? "yes" : "no"; };
    const std::string row =
        fmt::format("| {} | {} | {} | {} |", client, word("proxy"), word("redirect"), word("opened"));
    EXPECT_THAT(documented, HasSubstr(row));
  }
  expect_no_leak();
  if (!with_npm)
    GTEST_SKIP() << "npm could not be fetched here: NOT tried: npm, pnpm, undici; all others were";
}

const char* const narrow = R"(
[[egress.rule]]
host = "*.closed.site.test"
action = "deny"
[[egress.rule]]
host = "*.wild.test"
action = "allow"
[[egress.rule]]
host = "44.128.0.7"
ports = [80]
action = "allow"
[[egress.rule]]
host = "2a0f:ac00::2"
ports = [80]
action = "allow"
[[egress.rule]]
host = "credential.test"
action = "allow"
credential = "a-bearer"
[[egress.rule]]
host = "small.open.test"
action = "allow"
max_upload = "1KiB"
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
paths = ["/hello", "/socket", "/upgrade", "/git/*"]
deny_headers = ["x-fetch-url"]
deny_json_fields = ["image_url"]
[[egress.rule]]
host = "*.open.test"
action = "allow"
paths = ["/*"]
)";

TEST_F(ClientsTest, NoWayOutIsLeftToRootInTheGuest) {
  keep_secrets();
  auto running = start_guest(narrow, "exec python3 /mnt/guest/refusals.py $tree");
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  std::string recorded;
  for (const char* name : {"anchorhold.egress.deny", "anchorhold.credential.reject"})
    for (const auto& event : objects(run({"events", "list", "--name", name, "--json"}).out))
      recorded += event.dump() + "\n";
  EXPECT_THAT(recorded, Not(HasSubstr("planted-key")));
  expect_no_secret(outcome.out + recorded);
  EXPECT_EQ(read_text(folder("bed") / "refused"), "");
  int attempts = 0;
  for (const auto& result : objects(outcome.out)) {
    ++attempts;
    EXPECT_THAT(result.at("told").get<std::string>(), HasSubstr(result.at("expected").get<std::string>()))
        << result.dump(1);
    const std::string event = nlohmann::json(result.at("event")).dump();
    EXPECT_THAT(recorded, HasSubstr(event.substr(1, event.size() - 2))) << result.dump(1);
  }
  EXPECT_GE(attempts, 240);
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
  // Whole files and such that are just being written, again and again: what all of them allow goes on.
  await("rules replaced");
  const std::string one = configuration(all_open);
  const std::string other =
      configuration(std::string(all_open) + "[[egress.rule]]\nhost = \"other.test\"\naction = \"deny\"\n");
  for (int round = 0; round < 300; ++round) {
    const auto& text = round % 2 == 0 ? other : one;
    if (round % 3 == 0)
      write_text(configuration_file(), text);
    else
      ASSERT_TRUE(write_file_atomic(configuration_file(), text));
  }
  running.write_input("\n");
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
                                  std::string("rules replaced: "),
                                  std::string(" came"),
                                  std::string("cut: exit "),
                                  "after, opened: " + greeting})
    EXPECT_THAT(outcome.out, HasSubstr(line));
  // What was cut is seen to be so.
  for (const char* wrong : {"reset, tunnelled: 200 exit 0", "reset, opened: 200 exit 0", "cut: exit 0",
                            "redirect to a denied host: 200", " failed"})
    EXPECT_THAT(outcome.out, Not(HasSubstr(wrong)));
  EXPECT_EQ(objects(run({"events", "list", "--name", "anchorhold.egress.fail", "--json"}).out).size(), 1u);
  expect_no_leak();
}

// Through a connection that is opened and judged, with the secret of the person.
TEST_F(ClientsTest, ARepositoryOf300MegabytesPassesInLittleMemory) {
  if (!std::getenv("ANCHORHOLD_LONG_TESTS"))
    GTEST_SKIP() << "ANCHORHOLD_LONG_TESTS is not set: no large repository is cloned and pushed";
  keep_secrets();
  write_text(folder("bed") / "large", "300");
  auto running =
      start_guest(with_credentials,
                  "cd /run/over && echo begin && read -r _; t() { date +%s; }; "
                  "a=$(t) && git clone -q --bare https://git.open.test/git/large.git large && b=$(t) && "
                  "echo clone: $((b - a)) s, $(du -sm large | cut -f1) MB && cd large && "
                  "git push -q https://git.open.test/git/empty.git main:main && "
                  "echo push: $(($(t) - b)) s && git fetch -q origin main && "
                  "git ls-remote https://git.open.test/git/empty.git main && git rev-parse main; read -r _");
  running.read_until("begin\n");
  const pid_t egress = process_named("anchorhold-egressd");
  ASSERT_GT(egress, 0);
  const long at_rest = resident_kib(egress);
  running.write_input("\n");
  running.read_until("push: ");
  [[maybe_unused]] const long most = status_kib(egress, "VmHWM:");
#ifndef ANCHORHOLD_SANITIZED
  EXPECT_LT(most - at_rest, 16 << 10);
#endif
  running.write_input("\n");
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  std::cout << outcome.out << "memory: " << at_rest << " KiB at rest, at most " << most << "\n";
  // What came to the other repository is what was cloned.
  const auto end = outcome.out.find("\trefs/heads/main\n");
  ASSERT_NE(end, std::string::npos) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("main\n" + outcome.out.substr(end - 40, 40)));
  EXPECT_EQ(read_text(folder("bed") / "refused"), "");
}

}  // namespace
}  // namespace anchorhold::cli
