#include "programs.h"

namespace anchorhold::mounts {

const std::vector<Program>& thorough_programs() {
  static const std::vector<Program> all = {
      // Every way to change a file's bytes and size, at random places, through two descriptors and two
      // mappings,
      // against a copy in memory.
      {"random_writes", R"sh(
python3 - <<'EOF'
import ctypes, mmap, os, random
libc = ctypes.CDLL(None, use_errno=True)
seed = random.randrange(1 << 32); print('seed', seed); random.seed(seed)
limit = 300000
def fallocate(fd, mode, offset, size):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)) != 0: raise OSError(ctypes.get_errno(), 'fallocate')
fds = [os.open('file', os.O_CREAT | os.O_RDWR), os.open('file', os.O_RDWR)]
known = bytearray()
def place():
    offset = random.randrange(limit); return offset, min(random.randrange(1, 20000), limit - offset)
def write_known(offset, data):
    if len(known) < offset: known.extend(bytes(offset - len(known)))
    known[offset:offset + len(data)] = data
def write(fd):
    offset, size = place(); data = random.randbytes(size); assert os.pwrite(fd, data, offset) == size; write_known(offset, data)
def read(fd):
    offset, size = place(); got = os.pread(fd, size, offset); assert got == known[offset:offset + size], (offset, size, len(got), len(known))
def truncate(fd):
    size = random.randrange(limit); os.ftruncate(fd, size)
    if size < len(known): del known[size:]
    else: known.extend(bytes(size - len(known)))
def mapped(fd, writes):
    if not known: return
    with mmap.mmap(fd, len(known)) as view:
        offset = random.randrange(len(known)); size = min(random.randrange(1, 20000), len(known) - offset)
        assert view[offset:offset + size] == known[offset:offset + size], (offset, size)
        if writes: data = random.randbytes(size); view[offset:offset + size] = data; known[offset:offset + size] = data
        if writes and random.random() < .5: view.flush()
def map_and_write(fd): mapped(fd, True)
def map_and_read(fd): mapped(fd, False)
def punch(fd):
    offset, size = place(); fallocate(fd, 3, offset, size)
    size = min(size, len(known) - offset)
    if size > 0: known[offset:offset + size] = bytes(size)
def zero(fd):
    offset, size = place(); fallocate(fd, 16, offset, size); write_known(offset, bytes(size))
def allocate(fd):
    offset, size = place(); fallocate(fd, 0, offset, size)
    if len(known) < offset + size: known.extend(bytes(offset + size - len(known)))
def copy(fd):
    half = len(known) // 2
    if half < 2: return
    source = random.randrange(half); size = random.randrange(1, half - source + 1); target = half + random.randrange(half)
    done = os.copy_file_range(fds[0], fds[1], size, source, target); write_known(target, bytes(known[source:source + done]))
def again(fd):
    i = fds.index(fd); os.close(fd); fds[i] = os.open('file', os.O_RDWR)
def whole(fd):
    assert os.fstat(fd).st_size == len(known) and open('file', 'rb').read() == known
def sync(fd): os.fsync(fd)
actions = [write] * 6 + [read] * 6 + [truncate, punch, zero, allocate, copy, again, whole, sync] + [map_and_write, map_and_read] * 2
for step in range(1500):
    action = random.choice(actions)
    try: action(random.choice(fds))
    except AssertionError as error: raise SystemExit(f'step {step} {action.__name__}: {error}')
whole(fds[0])
EOF
)sh"},
      // Four programs and one file: each has its own part of every page; whole lines are appended.
      {"many_writers", R"sh(
python3 - <<'EOF'
import fcntl, os, sys
with open('shared', 'wb') as file: file.truncate(64 * 4096)
for k in range(4):
    if os.fork() == 0:
        fd = os.open('shared', os.O_RDWR); log = os.open('log', os.O_CREAT | os.O_WRONLY | os.O_APPEND); counter = os.open('counter', os.O_CREAT | os.O_RDWR)
        for page in range(64):
            os.pwrite(fd, bytes([65 + k]) * 1024, page * 4096 + k * 1024)
            os.write(log, f'{k} {page}\n'.encode())
            fcntl.lockf(counter, fcntl.LOCK_EX)
            value = int(os.pread(counter, 20, 0) or b'0'); os.pwrite(counter, str(value + 1).encode(), 0)
            fcntl.lockf(counter, fcntl.LOCK_UN)
        os._exit(0)
for k in range(4): assert os.wait()[1] == 0
assert open('shared', 'rb').read() == b''.join(bytes([65 + k]) * 1024 for k in range(4)) * 64
assert sorted(open('log').read().split('\n')[:-1]) == sorted(f'{k} {page}' for k in range(4) for page in range(64))
assert open('counter').read() == '256'
EOF
)sh"},
      {"deep_paths_and_long_names", R"sh(
python3 - <<'EOF'
import os
top = os.getcwd()
for byte in range(1, 256):
    if byte == ord('/'): continue
    name = b'x' + bytes([byte]) + b'y'
    os.mkdir(name); open(name + b'/' + name, 'wb').write(name); os.link(name + b'/' + name, b'second' + name)
    os.symlink(name, b'link' + name); os.rename(name, b'moved' + name)
    assert open(b'moved' + name + b'/' + name, 'rb').read() == name == open(b'second' + name, 'rb').read() and os.readlink(b'link' + name) == name
assert len(os.listdir('.')) == 254 * 3
os.mkdir('n' * 255); os.mkdir('m' * 255)
open('n' * 255 + '/' + 'n' * 255, 'w').close(); os.rename('n' * 255 + '/' + 'n' * 255, 'm' * 255 + '/' + 'n' * 255); os.symlink('t' * 255, 'l' * 255)
for step in range(200): os.mkdir('deep'); os.chdir('deep'); open('file', 'w').write(str(step))
assert open('file').read() == '199' and os.getcwd() == top + '/deep' * 200
os.chdir(top); assert sum(1 for _ in os.walk('deep')) == 200
os.rename('deep', 'deeper'); assert open('deeper' + '/deep' * 199 + '/file').read() == '199'
for name in 'Case', 'CASE', 'case': open(name, 'w').write(name)
assert {open(name).read() for name in ('Case', 'CASE', 'case')} == {'Case', 'CASE', 'case'}
os.rename('Case', 'cASE'); os.rename('cASE', 'Case'); os.rename('CASE', 'case'); assert open('case').read() == 'CASE'
EOF
rm -rf deeper; test ! -e deeper
)sh"},
      {"many_files", R"sh(
python3 - <<'EOF'
import os
count = 100000
for i in range(count): os.close(os.open(f'file{i:06}', os.O_CREAT | os.O_WRONLY | os.O_EXCL))
names = os.listdir('.'); assert len(names) == len(set(names)) == count, len(names)
assert not os.path.exists('file100000') and os.stat('file014321').st_size == 0
listing = os.scandir('.'); some = [next(listing).name for _ in range(10)]
for name in names[:500]: os.unlink(name)
left = {entry.name for entry in listing} | set(some); assert left >= set(names[500:])
assert len(os.listdir('.')) == count - 500
EOF
)sh"},
      {"many_open_files", R"sh(
python3 - <<'EOF'
import errno, os, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
open('file', 'w').write('text')
try:
    while len(held) < 100000: held.append(os.open('file', os.O_RDONLY))
except OSError as error:
    assert error.errno in (errno.EMFILE, errno.ENFILE), error
    print('bounded at', len(held), errno.errorcode[error.errno])
assert len(held) >= 1000 and os.pread(held[-1], 9, 0) == b'text'
for fd in held: os.close(fd)
assert open('file').read() == 'text'; open('other', 'w').write('works')
EOF
)sh"},
      // What lies about in people's folders, and everything that can be done to it.
      {"old_odd_things", R"sh(
cd /mnt/work/odd; python3 - "$mode" > /tmp/said <<'EOF'
import errno, os, shutil, sys
deletes = sys.argv[1] == 'rw'
def does(name, call, error=None, no_delete=None):
    wanted = error if deletes or no_delete is None else no_delete
    try: call(); got = None
    except OSError as failure: got = errno.errorcode[failure.errno]
    if got != wanted: print(f'{name}: {got} and not {wanted}')
def loses(name, call): does(name, call, None, 'EACCES')
def write(name, text='NEW'): open(name, 'w').write(text)
does('write what is closed', lambda: write('unreadable'), 'EACCES'); does('open it', lambda: os.chmod('unreadable', 0o600)); does('and write', lambda: write('unreadable'))
does('write in a closed folder', lambda: write('closed/file')); does('create in a closed folder', lambda: write('closed/new'), 'EACCES')
does('open the folder', lambda: os.chmod('closed', 0o700)); does('create in it', lambda: write('closed/new')); loses('remove it', lambda: shutil.rmtree('closed'))
loses('remove in a sticky folder', lambda: os.unlink('sticky/f')); does('not sticky', lambda: os.chmod('sticky', 0o755))
does('write setuid', lambda: write('setuid')); does('not setuid', lambda: os.chmod('setuid', 0o700)); loses('remove setuid', lambda: os.unlink('setuid'))
does('create in a setgid folder', lambda: (write('shared/new'), os.mkdir('shared/folder'), write('shared/f'), os.chmod('shared', 0o700)))
does('sparse', lambda: open('sparse', 'r+b').write(b'x')); does('huge', lambda: open('huge', 'r+b').write(b'x')); loses('remove huge', lambda: os.unlink('huge'))
does('deep', lambda: write('deep' + '/d' * 200 + '/file')); loses('remove deep', lambda: shutil.rmtree('deep' + '/d' * 180))
for name in 'pipe', 'door': does('mode of ' + name, lambda: os.chmod(name, 0o640)); loses('move ' + name, lambda: os.rename(name, name + '2')); loses('remove ' + name, lambda: os.unlink(name + '2' if deletes else name))
loses('case only', lambda: os.rename('Case', 'case')); does('another case', lambda: write('CASE'))
does('by a dangling symlink', lambda: write('dangling')); loses('remove dangling', lambda: os.unlink('dangling')); does('by a symlink', lambda: write('to_file')); loses('remove a symlink', lambda: os.unlink('to_folder'))
loses('move a loop', lambda: os.rename('loop', 'loop2')); loses('remove a second name', lambda: os.unlink('dup')); does('write the other', lambda: write('dup2')); does('and the first', lambda: write('dup', 'fresh'))
loses('file to folder', lambda: (os.unlink('file_to_dir'), os.mkdir('file_to_dir'), write('file_to_dir/x'), os.mkdir('file_to_dir/y')))
loses('folder to file', lambda: (shutil.rmtree('dir_to_file'), write('dir_to_file'))); loses('folder to symlink', lambda: (shutil.rmtree('dir_to_link'), os.symlink('/etc/passwd', 'dir_to_link')))
loses('symlink to folder', lambda: (os.unlink('link_to_dir'), os.mkdir('link_to_dir'), write('link_to_dir/x'))); loses('symlink to file', lambda: (os.unlink('link_to_file'), write('link_to_file')))
loses('file to symlink', lambda: (os.unlink('file_to_link'), os.symlink('x', 'file_to_link')))
assert open(b'e\xcc\x81').read() != open(b'\xc3\xa9').read(), 'two names that look alike'
does('decomposed', lambda: write(b'e\xcc\x81')); loses('composed', lambda: os.rename(b'\xc3\xa9', b'\xc3\x89'))
does('xattrs', lambda: (os.setxattr('attributes', 'user.one', b'2'), os.removexattr('attributes', 'user.big'), os.setxattr('attributes', 'user.new', b'n'), write('attributes')))
for name in 'future', 'near_future', 'past', 'past2': does(name, lambda: (write(name), os.utime(name, (5, 5))))
loses('remove an empty folder', lambda: os.rmdir('empty')); loses('move a folder', lambda: os.rename('parent', 'parent2'))
loses('every second', lambda: [os.unlink(f'many/{i}') for i in range(1, 51, 2)]); loses('and others', lambda: [os.rename(f'many/{i}', f'many/r{i}') for i in range(2, 50, 4)])
for name in b'n\n\xff', b' lead and trail ', b'-rf', b'"quote', b'back\\slash': does(name, lambda: open(name, 'ab').write(b'x')); loses(name, lambda: os.unlink(name))
does('empty file', lambda: write('zero')); does('the folder itself', lambda: (os.chmod('.', 0o700), os.utime('.', (1, 1))))
does('its own', lambda: (os.mkdir('made'), write('made/a'), os.symlink('a', 'made/b'), os.link('made/a', 'made/c'), os.chmod('made/a', 0), os.chmod('made', 0o500)))
EOF
cat /tmp/said; test ! -s /tmp/said
)sh"},
  };
  return all;
}

}  // namespace anchorhold::mounts
