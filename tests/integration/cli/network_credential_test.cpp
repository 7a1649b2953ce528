// Credentials from programs in a real guest to a server that sees what comes out: the token becomes the
// secret, and the secret is nowhere but there.
#include <unistd.h>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

const std::string api_secret = "sk-real-secret-of-the-person-4711";
const std::string git_secret = "ghp-real-secret-for-the-repository";
const std::string aws_secret = "aws-real-secret-access-key-of-0815";

class NetworkCredentialTest : public CliTest {
 protected:
  void make_site() {
    auto made = run_program(
        {"/bin/sh", "-ec",
         "cd \"$1\"; mkdir -p site; openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test "
         "-addext basicConstraints=critical,CA:TRUE -keyout ca.key -out ca.pem 2>/dev/null; "
         "openssl req -newkey rsa:2048 -nodes -subj /CN=site.test -keyout key.pem -out request.pem "
         "2>/dev/null; "
         "printf "
         "'subjectAltName=DNS:api.site.test,DNS:git.site.test,DNS:s3.site.test,DNS:other.site.test,DNS:late."
         "site.test' > "
         "names; "
         "openssl x509 -req -days 2 -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names "
         "-out leaf.pem 2>/dev/null; cat leaf.pem key.pem > tls.pem; printf %s \"$2\" > git-secret; "
         "printf %s \"$3\" > aws-secret; "
         "git init -q work; cd work; echo from git > file; git add file; git -c user.name=t -c "
         "user.email=t@t "
         "commit -qm x; git clone -q --bare . ../site/repository.git; cd ../site/repository.git; "
         "git update-server-info",
         "sh", bed_.string(), git_secret, aws_secret});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  void configure() {
    auto rule = [](const std::string& host, const std::string& more) {
      return "[[egress.rule]]\nhost = \"" + host + ".site.test\"\naction = \"allow\"\nports = [443]\n" +
             more + "\n";
    };
    write_text(home() / "config/anchorhold/config.toml",
               "[egress]\ndefault = \"deny\"\nextra_ca = [\"" + (bed_ / "ca.pem").string() + "\"]\n" +
                   rule("api", "credential = \"example\"") + rule("git", "credential = \"repo\"") +
                   rule("s3", "credential = \"storage\"") + rule("late", "credential = \"late\"") +
                   rule("other", "methods = [\"GET\", \"POST\"]"));
    ASSERT_EQ(run({"credential", "add", "example", "--variable", "EXAMPLE_TOKEN"}, api_secret).status, 0);
    ASSERT_EQ(run({"credential", "add", "repo", "--kind", "git"}, git_secret).status, 0);
    ASSERT_EQ(run({"credential", "add", "storage", "--kind", "aws-sigv4", "--user", "AKIAOFTHEPERSON0",
                   "--region", "eu-central-1"},
                  aws_secret)
                  .status,
              0);
  }
  static std::string reversed(std::string text) { return {text.rbegin(), text.rend()}; }
  static bool holds_a_secret(const std::string& text) {
    for (const auto& secret : {api_secret, git_secret, aws_secret})
      if (text.find(secret) != std::string::npos) return true;
    return false;
  }
  static std::string line_of(const std::string& out, const std::string& name) {
    auto at = out.find("\n" + name + ": ");
    if (out.starts_with(name + ": ")) at = 0;
    if (at == std::string::npos) return "no line " + name;
    auto begin = out.find(": ", at) + 2;
    return out.substr(begin, out.find('\n', begin) - begin);
  }

  std::filesystem::path bed_ = folder("bed");
};

TEST_F(NetworkCredentialTest, TheSecretIsSeenByTheServerAndByNobodyElse) {
  ANCHORHOLD_NEEDS_IMAGE();
  ANCHORHOLD_NEEDS_NETWORK();
  make_site();
  configure();
  auto scripts = folder("scripts");
  std::filesystem::copy_file(source("cli/network/credentials_in_guest"), scripts / "in_guest");
  std::filesystem::copy_file(source("cli/network/look.py"), scripts / "look.py");
  auto running = start_in_bed({program(), "run", "-v", "--image", image_, "--ro", scripts.string(), "--user",
                               "root", "--", "bash", "/mnt/scripts/in_guest", reversed(api_secret),
                               reversed(git_secret), reversed(aws_secret)});
  running.read_until("looked\n");
  // While everything runs: no command line and no environment on the host has a secret in it.
  auto processes = processes_of_this_test();
  EXPECT_GT(processes.size(), 5u);
  for (pid_t pid : processes)
    for (const char* file : {"/cmdline", "/environ"})
      EXPECT_FALSE(holds_a_secret(read_text("/proc/" + std::to_string(pid) + file))) << pid << file;
  // What is added and forgotten while it runs counts at once.
  ASSERT_EQ(run({"credential", "add", "late"}, api_secret).status, 0);
  running.write_input("\n");
  running.read_until("late-added: 200\n");
  ASSERT_EQ(run({"credential", "rm", "late"}).status, 0);
  running.write_input("\n");
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  const std::string& out = outcome.out;
  const std::string stars = "Bearer " + std::string(api_secret.size(), '*');
  EXPECT_NE(line_of(out, "with-token").find(stars), std::string::npos) << out;
  EXPECT_NE(line_of(out, "body").find("some text"), std::string::npos) << out;
  const std::pair<const char*, const char*> table[] = {
      {"bare", "200"},
      {"planted-header", "401"},
      {"planted-basic", "401"},
      {"planted-query", "401"},
      {"planted-cookie", "401"},
      {"planted-second", "401"},
      {"without", "401"},
      {"elsewhere-header", "403"},
      {"elsewhere-query", "403"},
      {"elsewhere-body", "403"},
      {"elsewhere-clean", "200"},
      {"clone", ""},
      {"cloned", "from git "},
      {"same-token", ""},
      {"aws-get", "AKIAOFTHEPERSON0 good"},
      {"aws-put", "AKIAOFTHEPERSON0 good"},
      {"aws-region", "403"},
      {"aws-planted", "401"},
      {"late-before", "403"},
      {"late-forgotten", "403"},
      {"memory", "found 0 in much "},
  };
  for (const auto& [name, result] : table) EXPECT_EQ(line_of(out, name), result) << name << "\n" << out;

  // The server got the secrets, and nothing that was planted or was the token.
  const std::string requests = read_text(bed_ / "requests");
  EXPECT_NE(requests.find("Authorization: Bearer " + api_secret), std::string::npos) << requests;
  EXPECT_NE(requests.find("GET /repository.git/info/refs"), std::string::npos) << requests;
  EXPECT_EQ(requests.find("planted"), std::string::npos) << requests;
  EXPECT_EQ(requests.find("key="), std::string::npos) << requests;

  // And on the host nothing else has one.
  EXPECT_FALSE(holds_a_secret(outcome.out + outcome.err));
  auto events = run({"events", "list", "--json"});
  EXPECT_FALSE(holds_a_secret(events.out));
  int used = 0, rejected = 0;
  for (const auto& event : objects(events.out)) {
    used += event.dump().find("anchorhold.credential.use") != std::string::npos;
    rejected += event.dump().find("anchorhold.credential.reject") != std::string::npos;
  }
  EXPECT_GE(used, 5);
  EXPECT_GE(rejected, 8) << "the token in a body is a denial";
  for (const char* folder : {"config", "state", "run", "cache"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(home() / folder))
      if (entry.is_regular_file()) {
        EXPECT_FALSE(holds_a_secret(read_text(entry.path()))) << entry.path();
      }
}

// The same from this computer, without a guest.
TEST_F(NetworkCredentialTest, ACredentialIsTriedFromTheHost) {
  ANCHORHOLD_NEEDS_NETWORK();
  make_site();
  configure();
  auto outcome = run_in_bed({"/bin/sh", "-c",
                             "\"$1\" credential test example https://api.site.test/v1/x && "
                             "\"$1\" credential test example && \"$1\" credential list",
                             "sh", program()});
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("example: GET https://api.site.test/v1/x answered 200"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find(": 200)"), std::string::npos) << outcome.out;
  EXPECT_NE(read_text(bed_ / "requests").find("Authorization: Bearer " + api_secret), std::string::npos);
  EXPECT_FALSE(holds_a_secret(outcome.out + outcome.err));
}

}  // namespace
}  // namespace anchorhold::cli
