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
  void make_forge() {
    auto made = run_program(
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
    ASSERT_EQ(made.status, 0) << made.err;
    write_text(home() / "config/anchorhold/config.toml",
               "[egress]\ndefault = \"deny\"\nextra_ca = [\"" + (bed_ / "ca.pem").string() +
                   "\"]\n[[egress.rule]]\nhost = \"forge.site.test\"\nports = [443]\naction = \"allow\"\n"
                   "credential = \"forge\"\ngit = { repositories = [\"team/*\"], operations = [\"fetch\", "
                   "\"push\"], refs = [\"refs/heads/agent/*\"] }\n");
    ASSERT_EQ(run({"credential", "add", "forge", "--kind", "git"}, password).status, 0);
  }
  std::string refs() {
    return run_program({"/usr/bin/git", "-c", "safe.directory=*", "-C",
                        (bed_ / "repositories/team/app.git").string(), "for-each-ref", "--format=%(refname)"})
        .out;
  }

  std::filesystem::path bed_ = folder("bed");
};

TEST_F(NetworkGitTest, APushToWhatIsGrantedArrivesAndAnotherIsRefusedInWords) {
  ANCHORHOLD_NEEDS_IMAGE();
  ANCHORHOLD_NEEDS_NETWORK();
  make_forge();
  auto scripts = folder("scripts");
  std::filesystem::copy_file(source("cli/network/git_in_guest"), scripts / "git_in_guest");
  auto outcome = run_in_bed({program(), "run", "-v", "--image", image_, "--ro", scripts.string(), "--",
                             "bash", "/mnt/scripts/git_in_guest"});
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
