// People's programs on a granted folder, in a real guest, in each mode that lets them work. In the end the
// session is undone: the folder is as it was before all of it.
#include "programs.h"

#include "../../unit/mounts/tree_snapshot.h"
#include "base/process.h"
#include "granted_guest.h"
#include "mounts/review.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

// The programs that the image lacks: a folder, granted to be read and laid beneath the guest's /usr.
fs::path brought() {
  const char* folder = std::getenv("ANCHORHOLD_TEST_PROGRAMS");
  return folder != nullptr ? folder : "";
}

// What a person has in the folder.
void make_old_things(const fs::path& folder) {
  const std::string script = R"sh(
set -e
mkdir -p existing/repository existing/removed existing/synced; cd existing
echo zero > notes.txt; echo old text > text.txt; echo plain > plain.txt; echo 1,2,3,4,5 > sheet.csv; printf 'a document' > doc.odt
echo edited by vim > edited.txt; echo kept > synced/kept.txt; echo extra > synced/extra.txt
for i in $(seq 20); do echo $i > removed/$i; done; ln text.txt second-name; chmod 640 notes.txt
python3 - <<'PY'
import sqlite3, zipfile
with zipfile.ZipFile('archive.zip', 'w') as archive: archive.writestr('first', 'first')
base = sqlite3.connect('table.db'); base.execute('create table t(x)'); base.execute('insert into t values (1)'); base.commit()
PY
cd repository; git init -q -b main; git config user.name a; git config user.email a@example.org
echo one > old.txt; echo 'goes away' > gone.txt; printf '#!/bin/sh\n' > run.sh; chmod 755 run.sh; ln -s old.txt link
git add -A; git commit -qm first; echo two >> old.txt; git commit -qam second
cd ..; git init -q -b main secretive; cd secretive; git config user.name a; git config user.email a@example.org
echo A=1 > .env.example; echo code > code.txt; git add -A; git commit -qm first
cd ../..; mkdir -p odd/empty odd/parent/inner odd/closed/sub odd/sticky odd/shared odd/dir_to_file odd/dir_to_link odd/many; cd odd
echo secret > unreadable; chmod 000 unreadable; echo in > closed/file; echo x > closed/sub/deep; chmod 500 closed
echo s > sticky/f; chmod 1777 sticky; echo i > shared/f; chmod 2775 shared; echo run > setuid; chmod 6755 setuid
truncate -s 10M sparse; printf middle | dd of=sparse bs=1 seek=5000000 conv=notrunc status=none; truncate -s 1G huge
path=deep; for i in $(seq 200); do path=$path/d; done; mkdir -p $path; echo bottom > $path/file
mkfifo pipe; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('door')"
echo case > Case; echo d > dup; ln dup dup2; ln -s nowhere dangling; ln -s dup to_file; ln -s empty to_folder; ln -s loop loop
for name in file_to_dir file_to_link; do echo q > $name; done; : > zero; echo in > dir_to_file/in; echo in > dir_to_link/in
ln -s dup link_to_dir; ln -s dup link_to_file; for i in $(seq 50); do echo $i > many/$i; touch -d @$((1000000000 + i)) many/$i; done
python3 - <<'PY'
import os
for name in b'e\xcc\x81', b'\xc3\xa9', b'n\n\xff', b' lead and trail ', b'-rf', b'"quote', b'back\\slash': open(name, 'wb').write(name)
open('attributes', 'w').write('x')
for name, value in ('one', b'1'), ('big', b'x' * 2000), ('empty', b''): os.setxattr('attributes', 'user.' + name, value)
for name, time in ('future', 15000000000), ('near_future', 10424509323), ('past', -2147472000), ('past2', -315619200):
    open(name, 'w').write(name); os.utime(name, ns=(time * 10**9 + 5, time * 10**9 + 999999999))
PY
touch -d @1234567890.123456789 empty parent many dir_to_file .
)sh";
  SpawnSpec spec;
  spec.argv = {"/bin/bash", "-c", script};
  spec.working_directory = folder;
  spec.environment = std::vector<std::string>{"PATH=/usr/bin:/bin", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/"};
  auto child = Child::spawn(spec);
  ASSERT_TRUE(child) << child.error().message;
  auto status = child->wait();
  ASSERT_TRUE(status.ok()) << to_string(status);
}

template <Mode mode>
class Programs : public ::testing::TestWithParam<Program> {
 protected:
  static void SetUpTestSuite() {
    if (!anchorhold::testing::RealGuest::why_not().empty()) return;
    guest_ = GrantedGuest::boot({{"work", mode}}, brought());
    if (!guest_) return;
    make_old_things(guest_->folder("work"));
    before_ = testing::snapshot_of(guest_->folder("work"));
    auto said = guest_->run(
        "git config --global user.email person@example.org; git config --global user.name Person");
    EXPECT_EQ(said.status, 0) << said.output;
    if (brought().empty()) return;
    said = guest_->run("mount -t overlay -o ro,lowerdir=/usr:" + in_guest() + "/usr programs /usr", "root");
    EXPECT_EQ(said.status, 0) << said.output;
  }
  static void TearDownTestSuite() { guest_.reset(); }
  void SetUp() override {
    if (auto why = anchorhold::testing::RealGuest::why_not(); !why.empty()) GTEST_SKIP() << why;
    ASSERT_TRUE(guest_);
  }
  static std::string in_guest() { return "/mnt/" + brought().filename().string(); }

  void run(const Program& program) {
    if (program.script == nullptr) return undo_everything();
    if (program.needs != nullptr && guest_->run(std::string("command -v ") + program.needs).status != 0)
      GTEST_SKIP() << "the guest has no " << program.needs
                   << ": ANCHORHOLD_TEST_PROGRAMS names no folder of programs with it";
    std::string folder = std::string("/mnt/work/") + program.name;
    auto said = guest_->run(
        "set -e; trap 'echo \"failed: $BASH_COMMAND\"' ERR; mode=" + std::string(to_string(mode)) +
        "; brought=" + in_guest() + "; mkdir " + folder + "; cd " + folder + "; " + program.script);
    EXPECT_EQ(said.status, 0) << said.output;
  }
  // After all programs of this mode: what they did is undone.
  void undo_everything() {
    auto folder = guest_->folder("work");
    guest_->end();
    auto places = ledgers_of_session(guest_->ledgers());
    ASSERT_TRUE(places) << places.error().message;
    ASSERT_EQ(places->size(), 1u);
    auto changes = review(places->front(), {});
    ASSERT_TRUE(changes) << changes.error().message;
    EXPECT_FALSE(changes->changes.empty());
    auto undone = undo(places->front(), {});
    ASSERT_TRUE(undone) << undone.error().message;
    for (const auto& refusal : undone->refused) ADD_FAILURE() << refusal.path << ": " << refusal.reason;
    EXPECT_EQ(testing::difference(before_, testing::snapshot_of(folder)).substr(0, 4000), "");
    fs::permissions(folder / "odd/closed", fs::perms::owner_all);  // so that an ordinary user can remove it
  }

  static std::unique_ptr<GrantedGuest> guest_;
  static testing::Snapshot before_;
};
template <Mode mode>
std::unique_ptr<GrantedGuest> Programs<mode>::guest_;
template <Mode mode>
testing::Snapshot Programs<mode>::before_;

using ProgramsRw = Programs<Mode::rw>;
using ProgramsRwNoDelete = Programs<Mode::rw_no_delete>;

TEST_P(ProgramsRw, Work) {
  run(GetParam());
}
TEST_P(ProgramsRwNoDelete, Work) {
  run(GetParam());
}

std::vector<Program> all_programs() {
  std::vector<Program> all;
  for (const auto* some :
       {&programs(), &git_programs(), &programs_on_old_things(), &thorough_programs(), &brought_programs()})
    all.insert(all.end(), some->begin(), some->end());
  all.push_back({"and_all_of_it_is_undone", nullptr});
  return all;
}

std::string program_name(const ::testing::TestParamInfo<Program>& program) {
  return program.param.name;
}
INSTANTIATE_TEST_SUITE_P(Rw, ProgramsRw, ::testing::ValuesIn(all_programs()), program_name);
INSTANTIATE_TEST_SUITE_P(RwNoDelete, ProgramsRwNoDelete, ::testing::ValuesIn(all_programs()), program_name);

}  // namespace
}  // namespace anchorhold::mounts
