// Git over HTTPS from a real guest: what a rule grants works, and what it does not is refused in words.
#include <gmock/gmock.h>
#include <unistd.h>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string password = "ghp-real-secret-of-the-forge";

class NetworkGitTest : public CliTest {
 protected:
  static std::string beside(const std::string& name) {
    return std::string(ANCHORHOLD_SOURCE_DIR) + "/tests/integration/cli/network/" + name;
  }
  Outcome in_bed(std::vector<std::string> argv) {
    std::vector<std::string> words{beside("bed"), bed_.string()};
    words.insert(words.end(), argv.begin(), argv.end());
    auto running = start_in_private_network(words);
    running.close_input();
    return running.finish();
  }
  void make_forge() {
    auto running = start_program(
        {"/bin/sh", "-ec",
         "cd \"$1\"; mkdir -p site repositories/team repositories/other; printf %s \"$2\" > password; "
         "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext "
         "basicConstraints=critical,CA:TRUE -keyout ca.key -out ca.pem 2>/dev/null; "
         "openssl req -newkey rsa:2048 -nodes -subj /CN=forge -keyout key.pem -out request.pem 2>/dev/null; "
         "echo subjectAltName=DNS:forge.site.test > names; openssl x509 -req -days 2 -in request.pem -CA "
         "ca.pem -CAkey ca.key -CAcreateserial -extfile names -out leaf.pem 2>/dev/null; "
         "cat leaf.pem key.pem > forge.pem; git init -q -b main work; cd work; echo from the forge > file; "
         "git add file; git -c user.name=t -c user.email=t@t commit -qm x; "
         "git clone -q --bare . ../repositories/team/app.git; "
         "git clone -q --bare . ../repositories/other/private.git",
         "sh", bed_.string(), password});
    running.close_input();
    auto made = running.finish();
    ASSERT_EQ(made.status, 0) << made.err;
    write_text(home() / "config/anchorhold/config.toml",
               "[egress]\ndefault = \"deny\"\nextra_ca = [\"" + (bed_ / "ca.pem").string() +
                   "\"]\n[[egress.rule]]\nhost = \"forge.site.test\"\nports = [443]\naction = \"allow\"\n"
                   "credential = \"forge\"\ngit = { repositories = [\"team/*\"], operations = [\"fetch\", "
                   "\"push\"], refs = [\"refs/heads/agent/*\"] }\n");
    ASSERT_EQ(run({"credential", "add", "forge", "--kind", "git"}, password).status, 0);
  }
  std::string refs() {
    auto running =
        start_program({"/usr/bin/git", "-c", "safe.directory=*", "-C",
                       (bed_ / "repositories/team/app.git").string(), "for-each-ref", "--format=%(refname)"});
    running.close_input();
    return running.finish().out;
  }

  std::filesystem::path bed_ = folder("bed");
};

TEST_F(NetworkGitTest, APushToWhatIsGrantedArrivesAndAnotherIsRefusedInWords) {
  ANCHORHOLD_NEEDS_IMAGE();
  make_forge();
  if (auto tried = in_bed({"true"}); tried.status != 0)
    GTEST_SKIP() << "no network of one's own here: " << tried.err;
  auto scripts = folder("scripts");
  std::filesystem::copy_file(beside("git_in_guest"), scripts / "git_in_guest");
  auto outcome = in_bed({program(), "run", "-v", "--image", image_, "--ro", scripts.string(), "--", "bash",
                         "/mnt/scripts/git_in_guest"});
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  for (const char* text :
       {"clone: status 0", "from the forge", "push: status 0", "force: status 0", "main: status 1",
        "mixed: status 1", "delete: status 1", "private: status 128", "bare: status 128", "web: status 0",
        "remote: anchorhold: a push to team/app may change refs/heads/agent/*, not refs/heads/main",
        "! [remote rejected] HEAD -> main (not allowed)",
        "! [remote rejected] HEAD -> agent/other (not sent, since the push as a whole is refused)",
        "remote: anchorhold: a push to team/app may not delete refs/heads/agent/fix",
        "remote: anchorhold: it is not allowed to fetch from the repository other/private", "\n403\n"})
    EXPECT_THAT(outcome.out, HasSubstr(text));
  EXPECT_EQ(refs(), "refs/heads/agent/fix\nrefs/heads/main\n");
  EXPECT_THAT(read_text(bed_ / "requests"), Not(HasSubstr("private")));
  EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr(password)));
  auto events = run({"events", "list", "--name", "anchorhold.egress", "--json"}).out;
  EXPECT_THAT(events, HasSubstr("create refs/heads/agent/fix"));
  EXPECT_THAT(events, HasSubstr("update refs/heads/main"));
  EXPECT_THAT(events, HasSubstr("\"git.repository\":\"team/app\""));
}

}  // namespace
}  // namespace anchorhold::cli
