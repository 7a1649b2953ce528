// anchorhold changes and undo, of what a real guest did. One guest for all of it: a folder it may do anything
// with, and one it may not delete in.
#include "../../unit/mounts/tree_snapshot.h"
#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

namespace fs = std::filesystem;
using mounts::testing::difference;
using mounts::testing::snapshot_of;

// What people's tools do to a folder; in each of the two. What is refused in the second may fail.
constexpr const char* session_script = R"sh(
set -e
for folder in /mnt/work /mnt/keep; do
  cd $folder
  export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
  # A repository that was there before.
  cd repository
  echo three >> file.txt; git add -A; git commit -qm third; git checkout -qb side HEAD~1
  echo other > other.txt; git add -A; git commit -qm fourth; git gc -q 2>/tmp/gc || true
  cd ..
  # As pip lays packages out: many small files, moved into place, and others replaced.
  mkdir -p packages/tmp; for i in $(seq 60); do echo "$i" > packages/tmp/module$i.py; done
  mv packages/tmp packages/new; cp -a packages/new packages/copy; rm -r packages/copy
  python3 -m compileall -q packages/new
  sed -i s/old/new/ notes.txt
  printf 'more\n' >> log.txt; truncate -s 3 short.txt; chmod 600 notes.txt; touch -d @1000000 log.txt
  ln notes.txt second-name; ln -s ../../etc/passwd leads-out
  printf '#!/bin/sh\necho hello\n' > tool.sh; chmod 755 tool.sh
  rm -rf old-folder || true; mv report.txt renamed.txt || true
  python3 -c "import sqlite3; d=sqlite3.connect('data.db'); d.execute('create table t(x)'); d.execute('insert into t values(1)'); d.commit()"
done
echo done
)sh";

class UndoTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ANCHORHOLD_NEEDS_IMAGE();
  }
  fs::path make(const std::string& name) {
    auto path = folder(name);
    fs::create_directories(path / "old-folder/deep");
    for (const char* file :
         {"notes.txt", "log.txt", "short.txt", "report.txt", "old-folder/deep/a", "old-folder/b"})
      write_text(path / file, std::string("old content of ") + file + "\n");
    auto git = start_program(
        {"/bin/sh", "-c",
         "cd " + path.string() +
             " && mkdir repository && cd repository && git init -q && git config user.name a && "
             "git config user.email a@b && echo one > file.txt && git add -A && git commit -qm "
             "first && echo two >> file.txt && git commit -qam second && find .. -exec touch -d "
             "@1500000000.123456789 {} +"},
        {{"GIT_CONFIG_GLOBAL", "/dev/null"}});
    auto outcome = git.finish();
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return path;
  }
  std::string session() {
    auto sessions = objects(run({"sessions", "list", "--json"}).out);
    EXPECT_EQ(sessions.size(), 1u);
    return sessions.empty() ? "" : sessions[0].at("id").get<std::string>();
  }
};

TEST_F(UndoTest, ASessionsWorkIsShownUndoneRedoneAndUndoneAgain) {
  auto work = make("work"), keep = make("keep");
  auto work_before = snapshot_of(work), keep_before = snapshot_of(keep);
  auto outcome = run(
      {"run", "--image", image_, "--rw", work, "--rw-no-delete", keep, "--", "bash", "-c", session_script});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  ASSERT_TRUE(outcome.out.ends_with("done\n")) << outcome.out << outcome.err;
  auto work_after = snapshot_of(work), keep_after = snapshot_of(keep);
  EXPECT_FALSE(work_after.contains("report.txt"));
  EXPECT_TRUE(keep_after.contains("report.txt")) << "not renamed where nothing may vanish";
  EXPECT_TRUE(keep_after.contains("old-folder/b"));

  const std::string id = session();
  auto shown = run({"sessions", "show", id}).out;
  EXPECT_NE(shown.find("rw-no-delete " + keep.string()), std::string::npos) << shown;
  auto said = run({"changes", id, "--json"});
  ASSERT_EQ(said.status, 0) << said.err;
  std::map<std::string, nlohmann::json> changes;
  std::string last_risk;
  for (const auto& object : objects(said.out))
    if (object.at("type") == "change" && object.at("grant") == "work") changes[object.at("path")] = object;
  ASSERT_TRUE(changes.contains("notes.txt")) << said.out;
  EXPECT_EQ(changes["notes.txt"].at("kind"), "modified");
  EXPECT_EQ(changes["renamed.txt"].at("old_path"), "report.txt");
  EXPECT_EQ(changes["old-folder/deep/a"].at("kind"), "deleted");
  EXPECT_EQ(changes["tool.sh"].at("risk"), "runs_here");
  EXPECT_EQ(changes["leads-out"].at("risk"), "leads_outside");
  EXPECT_EQ(changes["data.db"].at("kind"), "created");
  EXPECT_EQ(changes["data.db"].at("text"), false);
  EXPECT_FALSE(changes.contains("packages/copy"));
  auto text = run({"changes", id, "--diff", (work / "log.txt").string()}).out;
  EXPECT_NE(text.find("\n+more\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("notes.txt"), std::string::npos) << text;

  auto planned = run({"undo", id, "--dry-run"});
  EXPECT_EQ(planned.status, 0) << planned.out << planned.err;
  EXPECT_EQ(difference(work_after, snapshot_of(work)), "") << "a dry run changes nothing";
  auto undone = run({"undo", id, "--json"});
  EXPECT_EQ(undone.status, 0) << undone.out << undone.err;
  EXPECT_EQ(difference(work_before, snapshot_of(work)), "");
  EXPECT_EQ(difference(keep_before, snapshot_of(keep)), "");
  auto redone = run({"undo", id, "--redo"});
  EXPECT_EQ(redone.status, 0) << redone.out << redone.err;
  EXPECT_EQ(difference(work_after, snapshot_of(work)), "");
  EXPECT_EQ(difference(keep_after, snapshot_of(keep)), "");

  write_text(work / "notes.txt", "edited by its owner");
  auto refused = run({"undo", id});
  EXPECT_EQ(refused.status, 1) << refused.out;
  EXPECT_NE(refused.out.find("notes.txt (it was changed since)"), std::string::npos) << refused.out;
  EXPECT_EQ(read_text(work / "notes.txt"), "edited by its owner");
  EXPECT_EQ(run({"undo", id, "--force"}).status, 0);
  EXPECT_EQ(difference(work_before, snapshot_of(work)), "");
  EXPECT_EQ(difference(keep_before, snapshot_of(keep)), "");

  auto events = objects(run({"events", "list", "--json", "--name", "anchorhold.mount.undo"}).out);
  EXPECT_GE(events.size(), 12u) << "begin and end, for each folder";
  // Nothing is left to undo: the session can be forgotten, and what was kept goes with it.
  auto forgotten = run({"sessions", "rm", id});
  EXPECT_EQ(forgotten.status, 0) << forgotten.err;
  EXPECT_FALSE(fs::exists(home() / "state/anchorhold/ledgers" / id));
}

}  // namespace
}  // namespace anchorhold::cli
