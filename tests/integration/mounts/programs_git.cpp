#include "programs.h"

namespace anchorhold::mounts {

const std::vector<Program>& git_programs() {
  static const std::vector<Program> all = {
      {"git_submodules", R"sh(
git init -q part; cd part; echo one > part.txt; git add -A; git commit -qm one; cd ..
git init -q whole; cd whole
git -c protocol.file.allow=always submodule --quiet add ../part inner
git commit -qm 'with a part'; test -f inner/.git; test "$(cat inner/part.txt)" = one
cd ../part; echo two > part.txt; git commit -qam two; cd ../whole
git -c protocol.file.allow=always submodule --quiet update --remote
test "$(cat inner/part.txt)" = two; git commit -qam 'newer part'; test -z "$(git status --porcelain)"
cd ..; git -c protocol.file.allow=always clone -q --recurse-submodules whole clone
cd clone; test "$(cat inner/part.txt)" = two; test -z "$(git status --porcelain)"
git submodule --quiet deinit -f inner; git rm -q inner; git commit -qm 'without it'; test ! -e inner
)sh"},
      {"git_worktrees_and_rebase", R"sh(
git init -q -b main repo; cd repo
for i in 1 2 3 4; do echo $i > f$i; git add -A; git commit -qm $i; done
git worktree add -q ../tree -b side HEAD~2
cd ../tree; echo side > f2; git commit -qam side; git rebase -q main; test "$(git log --oneline | wc -l)" = 5
echo conflict > f3; git commit -qam ours; cd ../repo; echo other > f3; git commit -qam theirs
cd ../tree; if git rebase -q main 2>/dev/null; then exit 1; fi
echo merged > f3; git add f3; GIT_EDITOR=true git rebase --continue > /dev/null; test "$(cat f3)" = merged
echo dirty > f1; git stash -q; test "$(cat f1)" = 1; git stash apply -q; test "$(cat f1)" = dirty; git stash drop -q
git checkout -q -- f1; git commit -q --amend -m 'ours again'; git reset -q --hard HEAD~1; test "$(cat f3)" = other
cd ../repo; git worktree lock ../tree; git worktree unlock ../tree; git worktree move ../tree ../moved
git worktree remove ../moved; git worktree prune; test ! -e ../moved
git merge -q side; git cherry-pick side~1 > /dev/null 2>&1 || git cherry-pick --abort 2>/dev/null || git cherry-pick --skip
git tag -a v1 -m v1; git branch -D side -q; git reflog expire --expire=now --all; git gc -q --prune=now --aggressive
git repack -qadf; git pack-refs --all; git fsck --strict 2>&1 | grep -v '^notice' || true
git bundle create -q ../all.bundle --all; git clone -q ../all.bundle ../from-bundle -b main
git clean -fdxq; git mv f1 renamed; git commit -qm moved; test -z "$(git status --porcelain)"
git archive HEAD | tar t | grep -qx renamed
)sh"},
      {"git_modes_links_and_times", R"sh(
git init -q repo; cd repo; git config core.fileMode true
echo a > plain; printf '#!/bin/sh\n' > tool; chmod 755 tool; ln -s plain link; ln -s nowhere dangling; ln plain second
mkdir -p "with space/ü"; echo u > "with space/ü/ñ"; printf 'a\r\nb\n' > crlf; : > empty; head -c 300000 /dev/urandom > binary
git add -A; git commit -qm all; cd ..; git clone -q repo clone; cd clone
test -z "$(git status --porcelain)"; test -x tool; test ! -x plain; test "$(readlink dangling)" = nowhere
cmp binary ../repo/binary; cmp crlf ../repo/crlf
# What is as it was is not looked into again: its times are as git wrote them down.
git diff-files --quiet; chmod 644 tool; test "$(git status --porcelain)" = ' M tool'; chmod 755 tool; git diff --quiet
rm link; test "$(git status --porcelain)" = ' D link'; git checkout -q link; test -L link
)sh"},
  };
  return all;
}

const std::vector<Program>& programs_on_old_things() {
  static const std::vector<Program> all = {
      {"old_repository", R"sh(
cd /mnt/work/existing/repository
test -z "$(git status --porcelain)"; test -x run.sh; test -L link
# What only adds to a repository works in both modes, also where a file is replaced.
echo new > new.txt; git add new.txt; git commit -qm new; git commit -q --amend -m 'new, said better'
echo more >> old.txt; git add -A; git commit -qm more; git tag v2; git branch side HEAD~1
test -z "$(git status --porcelain)"; test "$(git log --oneline | wc -l)" = 4
git worktree add -q ../tree side; test -f ../tree/new.txt; git worktree remove ../tree; test ! -e ../tree
git fsck --strict > /dev/null
# What replaces files that were there removes them first: that works where it may, else git says that it did not.
if [ "$mode" = rw ]; then
  git checkout -q side; test "$(wc -l < old.txt)" = 2; git checkout -q -; echo dirty >> old.txt; git stash -q
  test "$(wc -l < old.txt)" = 3; git stash pop -q; git checkout -q old.txt; git rm -q gone.txt; git commit -qm 'one less'
  git gc -q --prune=now; test ! -e gone.txt
else
  # It says so, leaves the file alone, shows it as changed, and ends with 0.
  git checkout -q side 2> /tmp/said || true; grep -q 'Permission denied' /tmp/said
  test "$(wc -l < old.txt)" = 3; test "$(git status --porcelain)" = ' M old.txt'
  git symbolic-ref HEAD refs/heads/main; git reset -q; test -z "$(git status --porcelain)"
  if git rm -q gone.txt 2> /tmp/said; then exit 1; fi
  grep -q 'Permission denied' /tmp/said; test "$(cat gone.txt)" = 'goes away'; git reset -q
  git gc -q --prune=now 2> /tmp/said || true
fi
git fsck --strict > /dev/null; test -z "$(git status --porcelain)"
)sh"},
      // A repository that tracks a name which is hidden: it is not there for the guest's git, and a commit of
      // other files leaves it as it is.
      {"old_hidden_and_tracked", R"sh(
cd /mnt/work/existing/secretive
test "$(git status --porcelain)" = ' D .env.example'; test ! -e .env.example
if git checkout -q -- .env.example 2> /tmp/said; then exit 1; fi
echo more >> code.txt; git add code.txt; git commit -qm 'only this'
git ls-tree --name-only HEAD | grep -qx .env.example; git fsck --strict > /dev/null
)sh"},
      {"old_files", R"sh(
cd /mnt/work/existing
printf 'one\n' >> notes.txt; sed -i s/old/new/ text.txt; test "$(cat text.txt)" = 'new text'
python3 - <<'EOF'
import os, shutil, sqlite3, zipfile
with zipfile.ZipFile('archive.zip', 'a') as archive: archive.writestr('added', 'added')
assert zipfile.ZipFile('archive.zip').namelist() == ['first', 'added']
base = sqlite3.connect('table.db')
for journal in 'delete', 'truncate', 'persist', 'wal', 'delete':
    assert base.execute('pragma journal_mode=' + journal).fetchone()[0] == journal
    with base: base.execute('insert into t values (?)', (journal,))
assert base.execute('select count(*) from t').fetchone()[0] == 6
with open('sheet.csv', 'r+') as file: file.seek(4); file.write('9'); file.truncate(6)
with open('.~lock.doc.odt#', 'w') as lock: lock.write(',person,host;')
shutil.copy2('doc.odt', 'lu1.tmp'); open('lu1.tmp', 'a').write('more'); os.replace('lu1.tmp', 'doc.odt'); os.remove('.~lock.doc.odt#')
assert open('doc.odt').read() == 'a documentmore'
EOF
chmod 600 plain.txt; touch -d @99 notes.txt; python3 -c 'import os; os.setxattr("notes.txt", "user.seen", b"yes")'
if rm -rf removed 2> /tmp/said; then test "$mode" = rw; else test "$mode" = rw-no-delete; test "$(ls removed | wc -l)" = 20; fi
if mv text.txt Text.txt 2> /tmp/said; then test "$mode" = rw; else test "$mode" = rw-no-delete; test -e text.txt; fi
)sh"},
      {"old_synced", R"sh(
cd /mnt/work/existing
mkdir -p /tmp/from/sub; echo a > /tmp/from/sub/a; echo changed > /tmp/from/kept.txt; touch -d @1234567890 /tmp/from/kept.txt
rsync -a /tmp/from/ synced/; test "$(cat synced/kept.txt)" = changed; test "$(stat -c %Y synced/kept.txt)" = 1234567890
rsync -a --inplace /tmp/from/ synced/
if rsync -a --delete /tmp/from/ synced/ 2> /tmp/said; then test "$mode" = rw; test ! -e synced/extra.txt
else test "$mode" = rw-no-delete; grep -q 'Permission denied' /tmp/said; test -e synced/extra.txt; fi
)sh",
       "rsync"},
      {"old_edited", R"sh(
cd /mnt/work/existing
vim -es -u NONE -c 'set backup backupcopy=auto' -c '%s/by/through/' -c wq edited.txt; test "$(cat edited.txt)" = 'edited through vim'
)sh",
       "vim"},
  };
  return all;
}

}  // namespace anchorhold::mounts
