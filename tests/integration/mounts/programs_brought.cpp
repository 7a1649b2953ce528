#include "programs.h"

namespace anchorhold::mounts {

const std::vector<Program>& brought_programs() {
  static const std::vector<Program> all = {
      {"npm_ci", R"sh(
cp -r "$brought"/node_project project; cp -r "$brought"/npm-cache /tmp/npm-cache; cd project
npm ci --offline --no-audit --no-fund --ignore-scripts --silent --cache /tmp/npm-cache
node -e 'require("express")().get("/", () => {}); if (!require("express/package.json").version.startsWith("4.")) process.exit(1)'
test -L node_modules/.bin/mime; test "$(node_modules/.bin/mime a.txt)" = text/plain
node_modules/.bin/rimraf node_modules; test ! -e node_modules
)sh",
       "npm"},
      {"pnpm_install", R"sh(
cp -r "$brought"/node_project project; cp -r "$brought"/pnpm-store store; cd project
pnpm install --offline --frozen-lockfile --silent --store-dir ../store --package-import-method hardlink
node -e 'require("express")'; test -L node_modules/express
test "$(stat -c %h node_modules/express/index.js)" = 2
test "$(find node_modules/.pnpm -type f -links +1 | wc -l)" -gt 500
)sh",
       "pnpm"},
      {"make_and_gcc", R"sh(
mkdir src include
printf '#define GREETING "hello"\nint twice(int);\n' > include/greet.h
printf '#include "greet.h"\nint twice(int a) { return 2 * a; }\n' > src/twice.c
printf '#include <stdio.h>\n#include "greet.h"\nint main(void) { printf("%%s %%d\\n", GREETING, twice(21)); return 0; }\n' > src/main.c
printf 'CFLAGS = -O2 -g -Iinclude -MMD\nOBJECTS = build/main.o build/libtwice.a\nall: greet\ngreet: $(OBJECTS)\n\t$(CC) -o $@ $^\nbuild/libtwice.a: build/twice.o\n\tar rcs $@ $^\nbuild/%%.o: src/%%.c | build\n\t$(CC) $(CFLAGS) -c -o $@ $<\nbuild:\n\tmkdir build\nclean:\n\trm -rf build greet\n-include $(wildcard build/*.d)\n' > Makefile
make -s -j2; test "$(./greet)" = 'hello 42'; make -q
sed -i s/hello/goodbye/ include/greet.h; ! make -q; make -s; test "$(./greet)" = 'goodbye 42'
gcc -shared -fPIC -Iinclude -o libtwice.so src/twice.c; gcc -Iinclude -o linked src/main.c -L. -ltwice
test "$(LD_LIBRARY_PATH=. ./linked)" = 'goodbye 42'; strip greet; test "$(./greet)" = 'goodbye 42'
make -s clean; test ! -e build
)sh",
       "gcc"},
      {"rsync_and_cp", R"sh(
python3 - <<'EOF'
import os
for i in range(300):
    os.makedirs(f'from/d{i % 7}', exist_ok=True); path = f'from/d{i % 7}/f{i}'
    open(path, 'w').write('z' * i); os.chmod(path, 0o600 + i % 0o100); os.utime(path, (1e9 + i, 1e9 + i + .123456789))
os.symlink('f0', 'from/d0/link'); os.link('from/d0/f0', 'from/d1/hard'); os.setxattr('from/d0/f7', 'user.a', b'b')
os.chmod('from/d2', 0o700); os.utime('from/d3', (5, 5))
EOF
rsync -aHX from/ to/; test -z "$(rsync -aHXi from/ to/)"; test from/d0/f0 -ef from/d1/hard; test to/d0/f0 -ef to/d1/hard
echo changed > from/d0/f7; rm from/d1/f1; rsync -aHX --delete from/ to/; test -z "$(rsync -aHXin --delete from/ to/)"; test ! -e to/d1/f1
echo again >> from/d0/f7; rsync -aHX --inplace --no-whole-file from/ to/; cmp from/d0/f7 to/d0/f7
rsync -a --link-dest="$PWD/to" from/ snapshot/; test to/d2/f2 -ef snapshot/d2/f2
cp -a from copy; test -z "$(rsync -aHXin --delete from/ copy/)"
)sh",
       "rsync"},
      {"editors", R"sh(
printf 'first old line\nsecond\n' > text; chmod 640 text
for how in 'set backup backupcopy=auto' 'set nobackup nowritebackup' 'set writebackup backupcopy=yes' 'set backupcopy=no directory=.'; do
  vim -es -u NONE -c "$how" -c '$s/$/ another/' -c wq text
done
test "$(tail -n 1 text)" = 'second another another another another'; test "$(stat -c %a text)" = 640; test -e text~; test -z "$(ls -A | grep swp)"
cat > drive.py <<'EOF'
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ['TERM'] = 'linux'; os.execvp('nano', ['nano', '--ignorercfiles', '--backup', 'text'])
shown = b''
def until(text):
    global shown
    end = time.time() + 100
    while text not in shown:
        if time.time() > end: raise SystemExit(shown)
        if select.select([fd], [], [], 1)[0]: shown += os.read(fd, 65536)
    shown = b''
until(b'Exit'); os.write(fd, b'from nano '); until(b'from nano'); os.write(fd, b'\x0f'); until(b'Write'); os.write(fd, b'\r'); until(b'Wrote')
os.write(fd, b'\x18')
try:
    while os.read(fd, 65536): pass
except OSError: pass
sys.exit(os.waitpid(pid, 0)[1])
EOF
python3 drive.py; test "$(head -n 1 text)" = 'from nano first old line'; test "$(head -n 1 text~)" = 'first old line'
)sh",
       "vim"},
      {"sqlite_processes", R"sh(
for mode in delete truncate persist wal; do
  sqlite3 $mode.db "pragma journal_mode=$mode; create table t(a integer primary key, b);" > /dev/null
  for k in 1 2; do
    (for i in $(seq 8); do sqlite3 -cmd '.timeout 100000' $mode.db "begin immediate; insert into t(b) values('$k-$i'); update t set b = b || 'x' where a % 3 = 0; commit;" || exit 1; done) &
    eval "writer$k=\$!"
  done
  wait $writer1; wait $writer2
  test "$(sqlite3 $mode.db 'select count(*) from t; pragma integrity_check')" = "$(printf '16\nok')"
  sqlite3 $mode.db vacuum; sqlite3 $mode.db ".backup $mode.bak"; cmp -s $mode.db $mode.bak || test "$(sqlite3 $mode.bak 'select count(*) from t')" = 16
done
)sh",
       "sqlite3"},
      {"fio_verify", R"sh(
common='--size=4m --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal --output=/tmp/said'
fio $common --name=random --rw=randwrite --bs=1k-16k --bs_unaligned --ioengine=psync --fsync=32 || { cat /tmp/said; exit 1; }
fio $common --name=mapped --rw=randwrite --bs=4k --ioengine=mmap || { cat /tmp/said; exit 1; }
fio $common --name=direct --rw=randwrite --bs=4k --ioengine=libaio --iodepth=16 --direct=1 || { cat /tmp/said; exit 1; }
fio $common --name=several --rw=randrw --bs=4k --ioengine=psync --numjobs=3 --nrfiles=8 || { cat /tmp/said; exit 1; }
fio $common --name=falloc --rw=write --bs=64k --fallocate=posix --end_fsync=1 --ioengine=pvsync2 || { cat /tmp/said; exit 1; }
fio $common --name=trims --rw=randwrite --bs=4k --ioengine=psync --file_append=1 || { cat /tmp/said; exit 1; }
)sh",
       "fio"},
      // Saves as office programs do them: a lock beside the document, a new file that takes its place, a
      // backup.
      {"office_and_zip", R"sh(
printf x > sheet.ods; echo one > one.txt; echo two > two.txt
python3 - <<'EOF'
import os, shutil, tempfile
for version in range(20):
    with open('.~lock.sheet.ods#', 'x') as lock: lock.write(',person,host,29.11.2026 22:00,file:///home/person/.config;')
    shutil.copy2('sheet.ods', 'sheet.ods.bak'); fd, name = tempfile.mkstemp(prefix='lu', suffix='.tmp', dir='.')
    os.write(fd, b'version %d ' % version * 1000); os.fsync(fd); os.close(fd); os.chmod(name, 0o644)
    os.replace(name, 'sheet.ods'); os.remove('.~lock.sheet.ods#')
    assert open('sheet.ods').read().startswith(f'version {version} ')
folder = os.open('.', os.O_RDONLY); os.fsync(folder)
EOF
test "$(ls -A | grep -c lock)" = 0; test "$(head -c 10 sheet.ods.bak)" = 'version 18'
zip -q archive.zip one.txt; zip -q -u archive.zip two.txt; echo more >> one.txt; touch -d @2000000000 one.txt; zip -q -f archive.zip
zip -q -d archive.zip two.txt; test "$(unzip -p archive.zip)" = "$(printf 'one\nmore')"; unzip -tq archive.zip > /dev/null
mkdir out; cd out; unzip -q ../archive.zip; cmp one.txt ../one.txt
)sh"},
  };
  return all;
}

}  // namespace anchorhold::mounts
