#include "programs.h"

namespace anchorhold::mounts {

const std::vector<Program>& programs() {
  static const std::vector<Program> all = {
      {"git", R"sh(
git config --global user.email person@example.org; git config --global user.name Person
git init -q repo; cd repo
python3 - <<'EOF'
import os
for i in range(60):
    os.makedirs(f'd{i % 6}', exist_ok=True)
    open(f'd{i % 6}/f{i}.txt', 'w').write('x' * i)
os.symlink('f1.txt', 'd1/link')
open('run.sh', 'w').write('#!/bin/sh\necho hi\n'); os.chmod('run.sh', 0o755)
EOF
git add -A; git commit -q -m one
test -z "$(git status --porcelain)"
echo more >> d1/f1.txt; git commit -qam two; git commit -q --amend -m 'two again'
git checkout -q -b side HEAD~1; echo z > d2/new; git add -A; git commit -qm three; git rebase -q -
echo s >> run.sh; git stash -q; git stash pop -q; git checkout -q run.sh
git worktree add -q ../tree HEAD~1; git worktree remove ../tree
git gc -q; git fsck --strict
test "$(git log --oneline | wc -l)" = 3
git clone -q . ../clone; cd ../clone
test -z "$(git status --porcelain)"; test -x run.sh; test -L d1/link; test "$(cat d2/new)" = z
)sh"},
      {"pip", R"sh(
mkdir -p package/greeting; echo 'text = "hello"' > package/greeting/__init__.py
cat > package/setup.py <<'EOF'
from setuptools import setup
setup(name='greeting', version='1.0', packages=['greeting'])
EOF
python3 -m pip install -q --no-index --no-deps --no-build-isolation --target=site ./package
PYTHONPATH=site python3 -c 'import greeting; assert greeting.text == "hello"'
)sh"},
      {"venv", R"sh(
python3 -m venv --without-pip environment
environment/bin/python -c 'import sys; assert sys.prefix.endswith("environment"), sys.prefix'
rm -rf environment
)sh"},
      {"tar_and_rm", R"sh(
python3 - <<'EOF'
import os
for i in range(5000):
    os.makedirs(f'/tmp/source/d{i % 40}', exist_ok=True)
    open(f'/tmp/source/d{i % 40}/f{i}', 'w').write('y' * (i % 3000))
os.chmod('/tmp/source/d0/f0', 0o750); os.utime('/tmp/source/d1/f1', (1000000000, 1000000000))
os.symlink('f0', '/tmp/source/d0/link'); os.link('/tmp/source/d1/f1', '/tmp/source/d1/hard')
EOF
tar -C /tmp -cf /tmp/source.tar source
tar xf /tmp/source.tar; diff -r source /tmp/source
test "$(stat -c %a source/d0/f0)" = 750; test "$(stat -c %Y source/d1/f1)" = 1000000000
test "$(stat -c %h source/d1/f1)" = 2; test "$(readlink source/d0/link)" = f0
tar cf again.tar source; rm -rf source; test ! -e source
)sh"},
      {"sqlite", R"sh(
python3 - <<'EOF'
import sqlite3, threading
for mode in 'delete', 'truncate', 'persist', 'wal':
    name = 'base-' + mode
    base = sqlite3.connect(name)
    assert base.execute('pragma journal_mode=' + mode).fetchone()[0] == mode
    base.execute('create table t(a integer primary key, b)'); base.commit(); base.close()
    failures = []
    def writer(k):
        try:
            mine = sqlite3.connect(name, timeout=120)
            for i in range(10):
                with mine: mine.execute('insert into t(b) values(?)', (f'{k}-{i}' * 50,))
            mine.close()
        except Exception as error: failures.append(error)
    threads = [threading.Thread(target=writer, args=(k,)) for k in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not failures, failures
    base = sqlite3.connect(name)
    assert base.execute('select count(*) from t').fetchone()[0] == 20
    assert base.execute('pragma integrity_check').fetchone()[0] == 'ok'
EOF
)sh"},
      {"saves", R"sh(
echo old > plain; sed -i s/old/new/ plain; grep -q new plain
python3 - <<'EOF'
import os, zipfile
open('document~', 'w').write('second'); open('document', 'w').write('first'); os.replace('document~', 'document')
assert open('document').read() == 'second'
for name in 'one', 'two':
    with zipfile.ZipFile('archive.zip', 'a') as archive: archive.writestr(name, name)
assert zipfile.ZipFile('archive.zip').namelist() == ['one', 'two']
EOF
echo 1 > Case; mv Case case; test "$(ls)" = "$(printf 'archive.zip\ncase\ndocument\nplain')"
cp -a document copy; cmp document copy
)sh"},
      {"mappings_locks_and_attributes", R"sh(
python3 - <<'EOF'
import errno, fcntl, mmap, os, tempfile
with open('mapped', 'w+b') as file:
    file.truncate(1 << 20)
    view = mmap.mmap(file.fileno(), 1 << 20); view[5000:5005] = b'hello'; view.flush()
    assert open('mapped', 'rb').read()[5000:5005] == b'hello'
    view[900000:900003] = b'end'; view.close()
assert open('mapped', 'rb').read()[900000:900003] == b'end'
first, second = open('lock', 'w'), open('lock', 'w')
fcntl.flock(first, fcntl.LOCK_EX)
try: fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB); raise SystemExit('two locks')
except BlockingIOError: pass
fcntl.flock(first, fcntl.LOCK_UN); fcntl.flock(second, fcntl.LOCK_EX)
fcntl.lockf(first, fcntl.LOCK_EX)
os.setxattr('mapped', 'user.colour', b'green')
assert os.getxattr('mapped', 'user.colour') == b'green' and os.listxattr('mapped') == ['user.colour']
os.removexattr('mapped', 'user.colour')
with open('mapped', 'rb') as source, open('copied', 'wb') as target:
    assert os.copy_file_range(source.fileno(), target.fileno(), 1 << 20) == 1 << 20
assert open('mapped', 'rb').read() == open('copied', 'rb').read()
with tempfile.TemporaryFile(dir='.') as file:
    file.write(b'x' * 9000); file.seek(0); assert len(file.read()) == 9000; assert os.fstat(file.fileno()).st_size == 9000
with open('appended', 'a') as one, open('appended', 'a') as two:
    for i in range(50): one.write('one\n'); one.flush(); two.write('two\n'); two.flush()
assert open('appended').read() == 'one\ntwo\n' * 50
EOF
truncate -s 10T sparse; echo x >> sparse; test "$(stat -c %s sparse)" = 10995116277762; test "$(du -k sparse | cut -f1)" -lt 100
fallocate -l 1M allocated; test "$(stat -c %s allocated)" = 1048576
)sh"},
      {"names", R"sh(
python3 - <<'EOF'
import os
for byte in range(1, 256):
    if byte not in (ord('/'), ord('.')): open(bytes([byte]), 'w').write(str(byte))
assert len(os.listdir('.')) == 253
open(b'n' * 255, 'w').write('long')
try: open(b'n' * 256, 'w'); raise SystemExit('256 bytes')
except OSError: pass
os.mkdir('deep'); os.chdir('deep')
for level in range(200): os.mkdir('level' + 'x' * 10); os.chdir('level' + 'x' * 10)
open('bottom', 'w').write('deep'); assert open('bottom').read() == 'deep'
EOF
mkdir many; cd many; seq 3000 | xargs touch; test "$(ls | wc -l)" = 3000; rm -f *; test -z "$(ls)"
)sh"},
  };
  return all;
}

}  // namespace anchorhold::mounts
