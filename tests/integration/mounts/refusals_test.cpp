// What a guest cannot do to a granted folder, root in it or not, and what host and guest see of each other.
#include <sys/stat.h>
#include <unistd.h>

#include "granted_guest.h"

namespace anchorhold::mounts {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Refusals : public GrantedGuestTest {
 protected:
  static void SetUpTestSuite() {
    boot({{"read", Mode::ro}, {"work", Mode::rw}, {"keep", Mode::rw_no_delete}});
  }
};

TEST_F(Refusals, ReadOnlyIsDecidedOnTheHost) {
  auto folder = guest_->folder("read");
  EXPECT_EQ(guest_->run("cat /mnt/read/before.txt").output, "as it was\n");
  auto said = guest_->run(
      "mount -o remount,rw /mnt/read; cd /mnt/read; "
      "for attempt in 'echo x >> before.txt' 'echo x > new' 'rm before.txt' 'mv before.txt other' 'truncate "
      "-s 0 before.txt' "
      "'chmod 777 before.txt' 'mkdir folder' 'ln -s x link' 'ln before.txt hard' 'touch before.txt'; do "
      "if sh -c \"$attempt\" 2>/tmp/said; then echo \"allowed: $attempt\"; fi; grep -q 'Read-only' /tmp/said "
      "|| cat /tmp/said; done",
      "root");
  EXPECT_EQ(said.output, "");
  EXPECT_EQ(text_of(folder / "before.txt"), "as it was\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 3);
}

TEST_F(Refusals, WhatWasThereBeforeIsNotDeleted) {
  auto said = guest_->run(
      "cd /mnt/keep; rm before.txt; mv before.txt other; echo x > mine && rm mine && echo mine is gone",
      "root");
  EXPECT_NE(said.output.find("rm: cannot remove 'before.txt': Permission denied"), std::string::npos)
      << said.output;
  EXPECT_NE(said.output.find("mine is gone"), std::string::npos) << said.output;
  EXPECT_EQ(text_of(guest_->folder("keep") / "before.txt"), "as it was\n");
}

TEST_F(Refusals, NothingOutsideIsReached) {
  auto said = guest_->run("cd /mnt/work; mknod disk b 8 0", "root");
  EXPECT_NE(said.output.find("mknod: disk: Operation not permitted"), std::string::npos) << said.output;
  // A symlink is read in the guest and means the guest's own file.
  EXPECT_EQ(guest_->run("cmp /etc/passwd /mnt/work/outside && echo the same").output, "the same\n");
}

TEST_F(Refusals, HiddenNamesDoNotExist) {
  auto said =
      guest_->run("cd /mnt/work; ls -A | grep -c env; cat .env; mkdir .ssh; cp before.txt id_rsa", "root");
  EXPECT_EQ(said.output.substr(0, 2), "0\n") << said.output;
  EXPECT_EQ(said.output.find("SECRET"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(guest_->folder("work") / ".ssh"));
  EXPECT_FALSE(std::filesystem::exists(guest_->folder("work") / "id_rsa"));
}

TEST_F(Refusals, ExecutablesStayThatAndOwnersStayTheirs) {
  auto said = guest_->run(
      "cd /mnt/work; printf '#!/bin/sh\\necho ran\\n' > script; chmod 755 script; ./script; stat -c '%U %a' "
      "script");
  EXPECT_EQ(said.output, "ran\nanchorhold 755\n");
  EXPECT_EQ(guest_->run("chown root /mnt/work/script 2>&1 | grep -c permitted", "root").output, "1\n");
  struct stat info;
  ASSERT_EQ(stat((guest_->folder("work") / "script").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, geteuid());
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  EXPECT_NE(guest_->run("chmod u+s /mnt/work/script && test -u /mnt/work/script").status, 0);
}

// The guest holds the file open and reads it again and again. It ends well when it has seen the new text, and
// badly when it sees anything that was never in the file.
TEST_F(Refusals, HostEditsAreSeenWholeByWhoHoldsTheFileOpen) {
  auto path = guest_->folder("work") / "edited";
  std::ofstream(path) << std::string(9000, 'a');
  session::ExecSpec spec;
  spec.argv = {"python3", "-c", R"py(
import sys
file = open('/mnt/work/edited', 'rb')
assert file.read() == b'a' * 9000
print('watching', flush=True)
while True:
    file.seek(0)
    text = file.read()
    if text == b'short': sys.exit(0)
    if text not in (b'a' * 9000, b''): sys.exit(f'torn: {len(text)} bytes, {text[:20]!r}')
)py"};
  spec.errors = session::ExecSpec::Errors::merged;
  spec.time_limit = std::chrono::minutes(2);
  auto exec = guest_->client().start(spec);
  ASSERT_TRUE(exec) << exec.error().message;
  auto first = (*exec)->read(session::OutputStream::standard_output);
  ASSERT_TRUE(first && *first);
  EXPECT_EQ(**first, "watching\n");
  std::ofstream(path) << "short";
  auto rest = (*exec)->read(session::OutputStream::standard_output);
  auto status = (*exec)->wait();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(status->ok()) << to_string(*status) << " " << (rest && *rest ? **rest : "");
}

}  // namespace
}  // namespace anchorhold::mounts
