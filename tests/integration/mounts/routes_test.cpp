// Nothing that was there before vanishes: every route, in both modes that write, as root in one guest; and
// what the host finds afterwards. Then what names that are hidden elsewhere mean in folders the session made.
#include "routes.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <set>
#include <sstream>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <thread>

#include "../../unit/mounts/tree_snapshot.h"
#include "base/paths.h"
#include "granted_guest.h"
#include "mounts/review.h"
#include "posix_table.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string padded(const std::string& text) {
  return text + std::string(8192 - text.size(), '.');
}

// What the host put there is old, whenever that was.
void prepare(const fs::path& folder) {
  fs::create_directories(folder / "old");
  fs::create_directory(folder / "empty");
  for (const char* name : {"victim", "other", "old/inner", "victim2"})
    std::ofstream(folder / name) << padded("old content of " + (folder / name).string());
  EXPECT_EQ(setxattr((folder / "victim").c_str(), "user.old", "value", 5, 0), 0);
  fs::create_hard_link(folder / "victim2", folder / "hard");
  fs::create_symlink("victim", folder / "to_victim");
  std::ofstream(folder / "remote.odt.nextcloud") << "1";
}

// Granted alone, in both modes that write: the file itself can be changed, nothing beside it.
void use_single_files(GrantedGuest& guest, const fs::path& folder) {
  fs::create_directory(folder);
  for (const char* name : {"changed", "kept", "neighbour"}) {
    std::ofstream(folder / name) << padded(std::string("old content of ") + name);
    EXPECT_EQ(setxattr((folder / name).c_str(), "user.old", "value", 5, 0), 0);
  }
  guest.grant(folder / "changed", Mode::rw);
  guest.grant(folder / "kept", Mode::rw_no_delete);
}

constexpr const char* single_file_script = R"py(
import os
for name in 'changed', 'kept':
    os.chdir('/mnt/' + name); print(os.listdir('.'))
    for what, attempt in {
        'beside': lambda: write('neighbour', os.O_CREAT | os.O_WRONLY), 'folder': lambda: os.mkdir('folder'),
        'second': lambda: os.link(name, 'second'), 'symlink': lambda: os.symlink(name, 'symlink'),
        'moved': lambda: os.rename(name, 'moved'), 'removed': lambda: os.unlink(name),
        'above': lambda: os.chmod('.', 0o700), 'out': lambda: os.stat('../changed/neighbour'),
    }.items():
        try: attempt(); print(what, 'was done')
        except OSError: pass
    write(name, os.O_WRONLY | os.O_TRUNC); os.chmod(name, 0o600); os.setxattr(name, 'user.old', b'new'); os.utime(name, (1, 1))
    print(open(name).read())
)py";

std::string script_of(const std::string& grant) {
  std::string script = route_prelude;
  for (const auto& route : routes()) {
    script += "os.chdir('/mnt/" + grant + "/routes/" + route.name + "')\n";
    if (grant != "read") script += "open('own', 'w').write('mine'); os.mkdir('own_folder')\n";
    script += std::string("try:\n    ") + route.script + "\n    print('" + route.name + "', 0)\n";
    script += std::string("except OSError as error: print('") + route.name + "', error.errno)\n";
  }
  return script;
}

std::set<std::string> contents_beneath(const fs::path& folder) {
  std::set<std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && !entry.is_symlink()) contents.insert(text_of(entry.path()));
  return contents;
}

// By route: what it answered, as root in the guest.
std::map<std::string, int> try_all(GrantedGuest& guest, const std::string& grant) {
  auto said = guest.run("python3 - <<'EOF'\n" + script_of(grant) + "EOF", "root");
  EXPECT_EQ(said.status, 0) << said.output;
  std::map<std::string, int> errors;
  std::istringstream lines(said.output);
  for (std::string name; lines >> name;) lines >> errors[name];
  for (const auto& route : routes()) EXPECT_TRUE(errors.contains(route.name)) << said.output;
  return errors;
}

void expect_nothing_lost(GrantedGuest& guest, const std::string& grant, Mode mode) {
  auto folder = guest.folder(grant) / "routes";
  auto errors = try_all(guest, grant);
  auto kept = contents_beneath(guest.ledger(grant) / "kept");
  for (const auto& route : routes()) {
    int expected = mode == Mode::rw ? route.rw : route.no_delete, got = errors[route.name];
    bool unknown = route.may_be_unknown && (got == EOPNOTSUPP || got == EINVAL);
    EXPECT_TRUE(got == expected || unknown) << route.name << ": " << strerror(got);
    auto there = contents_beneath(folder / route.name);
    for (const char* name : {"victim", "other", "old/inner", "victim2"}) {
      auto text = padded("old content of " + (folder / route.name / name).string());
      EXPECT_TRUE(there.contains(text) || kept.contains(text)) << route.name << " lost " << name;
      // What was refused has left its name where it was.
      EXPECT_TRUE(got != EACCES || fs::exists(folder / route.name / name)) << route.name << ": " << name;
    }
  }
}

// Every route in each mode, in one guest, and then the undo: nothing was lost, and all of it comes back.
TEST(AllRoutes, AreRefusedOrKeptAndUndone) {
  if (auto why = anchorhold::testing::RealGuest::why_not(); !why.empty()) GTEST_SKIP() << why;
  auto guest = GrantedGuest::boot({{"read", Mode::ro}, {"work", Mode::rw}, {"keep", Mode::rw_no_delete}});
  ASSERT_TRUE(guest);
  std::map<std::string, testing::Snapshot> before;
  for (const char* grant : {"read", "work", "keep"}) {
    for (const auto& route : routes()) prepare(guest->folder(grant) / "routes" / route.name);
    if (grant == std::string("read"))
      for (const auto& route : routes()) {
        std::ofstream(guest->folder(grant) / "routes" / route.name / "own") << "mine";
        fs::create_directory(guest->folder(grant) / "routes" / route.name / "own_folder");
      }
    before[grant] = testing::snapshot_of(guest->folder(grant));
  }
  auto files = guest->folder("files");
  use_single_files(*guest, files);
  before["files"] = testing::snapshot_of(files);
  {
    SCOPED_TRACE("ro");
    // So that it is the host that says no.
    auto said =
        guest->run("mount -o remount,rw /mnt/read; grep -c ' /mnt/read virtiofs rw' /proc/mounts", "root");
    EXPECT_EQ(said.output, "1\n");
    for (const auto& [route, error] : try_all(*guest, "read"))
      EXPECT_TRUE(error == EROFS || error == EEXIST || error == ENOTEMPTY || error == EINVAL ||
                  error == EOPNOTSUPP || route == "writers_and_replacers_at_once" ||
                  // The guest's kernel forgets at once what it may not remember, and opens no handle of it.
                  (route == "open_by_handle" && error == ESTALE))
          << route << ": " << strerror(error);
    EXPECT_EQ(testing::difference(before["read"], testing::snapshot_of(guest->folder("read"))), "");
  }
  {
    SCOPED_TRACE("rw");
    expect_nothing_lost(*guest, "work", Mode::rw);
  }
  {
    SCOPED_TRACE("rw-no-delete");
    expect_nothing_lost(*guest, "keep", Mode::rw_no_delete);
  }
  auto said =
      guest->run("python3 - <<'EOF'\n" + std::string(route_prelude) + single_file_script + "EOF", "root");
  EXPECT_EQ(said.output, "['changed']\nNEW\n['kept']\nNEW\n");
  EXPECT_EQ(text_of(files / "changed") + text_of(files / "kept"), "NEWNEW");
  EXPECT_EQ(text_of(files / "neighbour"), padded("old content of neighbour"));
  guest->end();
  auto places = ledgers_of_session(guest->ledgers());
  ASSERT_TRUE(places) << places.error().message;
  ASSERT_EQ(places->size(), 4u);
  for (const auto& place : *places) {
    SCOPED_TRACE(place.name);
    auto undone = undo(place, {});
    ASSERT_TRUE(undone) << undone.error().message;
    for (const auto& refusal : undone->refused) ADD_FAILURE() << refusal.path << ": " << refusal.reason;
  }
  for (const char* grant : {"work", "keep"})
    EXPECT_EQ(testing::difference(before[grant], testing::snapshot_of(guest->folder(grant))), "") << grant;
  EXPECT_EQ(testing::difference(before["files"], testing::snapshot_of(files)), "");
}

class Routes : public GrantedGuestTest {
 protected:
  static void SetUpTestSuite() { boot({{"work", Mode::rw}, {"keep", Mode::rw_no_delete}}); }
};

TEST_F(Routes, TheCallsOfPosixAnswerAsTheyShould) {
  for (const std::string folder : {"/mnt/work/posix", "/mnt/keep/posix"}) {
    auto said = guest_->run(
        "mkdir " + folder + "; cd " + folder + "; python3 - <<'EOF'\n" + std::string(posix_table) + "EOF",
        "root");
    EXPECT_EQ(said.status, 0);
    EXPECT_EQ(said.output, "") << folder;
  }
}

TEST_F(Routes, HiddenNamesOfTheSessionsOwnWork) {
  const char* script = R"sh(
set -e
git config --global user.email person@example.org; git config --global user.name Person
mkdir /tmp/upstream; cd /tmp/upstream; git init -q
mkdir -p test .aws
echo 'registry=https://example.org' > .npmrc; echo 'X=1' > .env.example; echo key > test/server.pem; echo a > .aws/a
git add -A -f; git commit -qm one
for mode in work keep; do
  cd /mnt/$mode; git clone -q /tmp/upstream clone-$mode; cd clone-$mode
  test -z "$(git status --porcelain)"; test "$(cat test/server.pem)" = key; ls -A | grep -qx .npmrc
  echo more >> .env.example; git commit -qam two; git mv test/server.pem moved.pem; git commit -qm three
  test -z "$(git status --porcelain)"
  mkdir -p node_modules/pkg/fixtures; cd node_modules/pkg; tar -C /tmp/upstream -c . | tar x
  mv test/server.pem fixtures/id_rsa; test "$(cat fixtures/id_rsa)" = key; mv ../pkg ../.pkg-renamed; mv ../.pkg-renamed ../pkg
  cd ../..; rm -rf node_modules; test ! -e node_modules
  cd ..
  # In a folder of the person's an attempt fails, and says so.
  if echo x 2>/dev/null > .npmrc; then echo "$mode: made .npmrc"; fi
  if git -C /tmp/upstream archive HEAD | tar x 2>/dev/null; then echo "$mode: tar said nothing"; fi
  test ! -e .npmrc; test ! -e test/server.pem || echo "own folder test: $mode" > /dev/null
done
if command -v npm > /dev/null; then
  mkdir /tmp/dependency; cd /tmp/dependency; mkdir certs
  echo '{"name":"dependency","version":"1.0.0","files":["certs","index.js"]}' > package.json
  echo 'module.exports = 1' > index.js; echo key > certs/server.key; npm pack --silent > /dev/null
  for mode in work keep; do
    mkdir /mnt/$mode/project; cd /mnt/$mode/project; cp /tmp/dependency/dependency-1.0.0.tgz .
    echo '{"name":"project","version":"1.0.0","dependencies":{"dependency":"file:dependency-1.0.0.tgz"}}' > package.json
    npm install --silent --offline; rm -rf node_modules; npm ci --silent --offline; npm ci --silent --offline
    test "$(cat node_modules/dependency/certs/server.key)" = key
  done
fi
)sh";
  auto said = guest_->run(script);
  EXPECT_EQ(said.status, 0) << said.output;
  EXPECT_EQ(said.output, "");
}

// A pipe of the host's is one of the guest's own by that name: the guest's programs meet in it, and nobody of
// the host.
TEST_F(Routes, PipesOfTheHostAreNotOpenedAndNoneAreMade) {
  auto folder = guest_->folder("work");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0666), 0);
  auto said = guest_->run(
      "cd /mnt/work; stat -c %F pipe; (echo through > pipe &); timeout 60 cat pipe; "
      "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('door')\" 2>&1 | tail -1; "
      "mkfifo mine",
      "root");
  EXPECT_TRUE(said.output.starts_with("fifo\nthrough\nPermissionError")) << said.output;
  EXPECT_NE(said.output.find("mkfifo: cannot create fifo 'mine': Operation not permitted"), std::string::npos)
      << said.output;
  EXPECT_EQ(open((folder / "pipe").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
  EXPECT_EQ(errno, ENXIO);
  EXPECT_FALSE(fs::exists(folder / "door"));
}

// Another part of the same file system, bound into the folder: listed and nothing else. Who knew the folder
// before goes on in it, beneath what was mounted over it.
TEST_F(Routes, WhatIsMountedInsideIsNotReached) {
  auto folder = guest_->folder("work");
  fs::path elsewhere = folder.parent_path() / "elsewhere";
  for (const auto& made : {elsewhere, folder / "bound", folder / "known"}) fs::create_directory(made);
  std::ofstream(elsewhere / "secret") << "as it was";
  if (geteuid() != 0 || mount(elsewhere.c_str(), (folder / "bound").c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "no right to mount here: mounts inside are not tested";
  EXPECT_EQ(guest_->run("cd /mnt/work/known && touch mine && ls").output, "mine\n");
  EXPECT_EQ(mount(elsewhere.c_str(), (folder / "known").c_str(), nullptr, MS_BIND, nullptr), 0);
  auto said = guest_->run(
      "cd /mnt/work; ls | grep -c -x -e bound -e known; for name in bound known; do cat $name/secret; "
      "echo x > $name/secret; echo x > $name/new; rm -f $name/secret; done 2>/dev/null",
      "root");
  EXPECT_EQ(said.output, "2\n");
  EXPECT_EQ(text_of(elsewhere / "secret"), "as it was");
  EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere), {}), 1);
  for (const char* name : {"known", "bound"}) EXPECT_EQ(umount2((folder / name).c_str(), MNT_DETACH), 0);
  EXPECT_TRUE(fs::exists(folder / "known/mine"));
}

// A disk of its own: full, and then taken away, while the guest uses it.
TEST_F(Routes, TheDiskOfAFolderIsFullAndThenGone) {
  fs::path disk = guest_->folder("work").parent_path() / "disk";
  fs::create_directory(disk);
  if (geteuid() != 0 || mount("none", disk.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") != 0)
    GTEST_SKIP() << "no right to mount here: a full disk is not tested";
  std::ofstream(disk / "old") << "old content";
  guest_->grant(disk, Mode::rw_no_delete);
  auto said = guest_->run(
      "cd /mnt/disk; head -c 2M /dev/zero > large; echo $?; python3 -c '\nimport os, mmap\n"
      "file = open(\"hole\", \"w+b\"); file.truncate(4096)\n"
      "try: os.posix_fallocate(file.fileno(), 0, 1 << 20)\nexcept OSError as error: print(error.strerror)'; "
      "echo changed 2>/dev/null > old; rm large; echo room > small; cat small");
  EXPECT_NE(said.output.find("No space left on device"), std::string::npos) << said.output;
  EXPECT_TRUE(said.output.ends_with("1\nNo space left on device\nroom\n")) << said.output;
  auto kept = contents_beneath(guest_->ledger("disk") / "kept");
  EXPECT_TRUE(kept.contains("old content") || text_of(disk / "old") == "old content");
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
  said =
      guest_->run("cd /mnt/disk && timeout 60 cat small; timeout 60 sh -c 'echo more > after'; echo alive");
  EXPECT_TRUE(said.output.ends_with("alive\n")) << said.output;
  EXPECT_TRUE(fs::is_empty(disk)) << "nothing of it comes to what is in its place now";
  EXPECT_EQ(guest_->run("cat /mnt/keep/before.txt").output, "as it was\n");
}

TEST_F(Routes, WhatTheHostPermitsHoldsInTheGuest) {
  auto folder = guest_->folder("work");
  fs::create_directory(folder / "private");
  for (const char* name : {"private/file", "closed"}) std::ofstream(folder / name) << "text";
  auto tries = [&](const std::string& expected) {
    // Until the guest was told, it may go on with what it knows.
    const std::string script =
        "cd /mnt/work; for i in $(seq 100); do said=$(cat closed private/file 2>/dev/null; echo; (echo x >> "
        "closed) 2>/dev/null && echo written); test \"$said\" = \"$(printf '" +
        expected + "')\" && break; sleep 0.2; done; echo \"$said\"";
    return guest_->run(script).output;
  };
  fs::permissions(folder / "closed", fs::perms::none);
  fs::permissions(folder / "private", fs::perms::none);
  EXPECT_EQ(tries("\\n"), "\n");
  fs::permissions(folder / "closed", fs::perms::owner_read);
  fs::permissions(folder / "private", fs::perms::owner_all);
  EXPECT_EQ(tries("texttext\\n"), "texttext\n");
  EXPECT_EQ(text_of(folder / "closed"), "text");
}

// The host swaps a folder for a symlink that leads out, and back, while root in the guest works beneath the
// name.
TEST_F(Routes, AFolderSwappedForASymlinkLeadsNowhere) {
  auto folder = guest_->folder("work");
  fs::path outside = folder.parent_path() / "outside";
  for (const auto& made : {outside, folder / "swapped"}) {
    fs::create_directory(made);
    std::ofstream(made / "file") << "as it was";
  }
  fs::create_directory_symlink(outside, folder / "link");
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    while (!stop)
      renameat2(AT_FDCWD, (folder / "swapped").c_str(), AT_FDCWD, (folder / "link").c_str(), RENAME_EXCHANGE);
  });
  auto said = guest_->run(R"sh(cd /mnt/work; python3 - <<'EOF'
import os, time
done = i = 0
deadline = time.time() + 100
while time.time() < deadline and (i < 400 or not done):
    i += 1
    for attempt in (lambda: open('swapped/file', 'w').write('changed'), lambda: open(f'swapped/new{i}', 'w').close(),
                    lambda: os.rename('swapped/file', 'swapped/file2'), lambda: os.rename('swapped/file2', 'swapped/file')):
        try: attempt(); done += 1
        except OSError: pass
print('done' if done else 'nothing was done')
EOF)sh",
                          "root");
  stop = true;
  swapper.join();
  EXPECT_EQ(said.output, "done\n");
  EXPECT_EQ(text_of(outside / "file"), "as it was");
  EXPECT_EQ(std::distance(fs::directory_iterator(outside), {}), 1);
}

// The last one: the guest does not live after it.
TEST_F(Routes, ZTheGrantedFolderIsReplacedAndRemovedInUse) {
  auto folder = guest_->folder("work"), away = folder.parent_path() / "away";
  std::ofstream(folder / "here") << "granted";
  fs::rename(folder, away);
  fs::create_directory(folder);
  std::ofstream(folder / "here") << "another folder of that name";
  EXPECT_EQ(guest_->run("cat /mnt/work/here; echo more >> /mnt/work/made").output, "granted");
  EXPECT_EQ(text_of(away / "made"), "more\n");
  fs::remove_all(away);
  auto said = guest_->run(
      "cd /mnt/work; timeout 20 sh -c 'echo x > lost' 2>/dev/null && echo written; "
      "timeout 20 cat here 2>/dev/null && echo read; echo alive");
  EXPECT_EQ(said.output, "alive\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  // The keeper is killed in the middle: the guest ends, and says why.
  guest_->kill_process("anchorhold-keeper");
  guest_->wait_until_lost();
  EXPECT_NE(guest_->cause().find("the keeper of"), std::string::npos) << guest_->cause();
}

// The reader is killed while a program saves as careful programs do.
TEST_F(Routes, ZWhenTheReaderIsKilledTheGuestEndsAndNoSaveIsHalf) {
  auto guest = GrantedGuest::boot({{"saved", Mode::rw}});
  ASSERT_TRUE(guest);
  session::ExecSpec spec;
  spec.argv = {"python3", "-c", R"py(
import os
number = 0
while True:
    with open('/mnt/saved/new', 'w') as file: file.write(str(number % 10) * 100000)
    os.replace('/mnt/saved/new', '/mnt/saved/state')
    if number == 20: print('saving', flush=True)
    number += 1
)py"};
  auto exec = guest->client().start(spec);
  ASSERT_TRUE(exec) << exec.error().message;
  auto first = (*exec)->read(session::OutputStream::standard_output);
  ASSERT_TRUE(first && *first);
  guest->kill_process("anchorhold-fsd");
  guest->wait_until_lost();
  EXPECT_NE(guest->cause().find("the reader of saved"), std::string::npos) << guest->cause();
  auto state = text_of(guest->folder("saved") / "state");
  EXPECT_EQ(state.size(), 100000u);
  EXPECT_EQ(state.find_first_not_of(state.substr(0, 1)), std::string::npos);
}

}  // namespace
}  // namespace anchorhold::mounts
