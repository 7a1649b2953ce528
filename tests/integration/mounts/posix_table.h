// What the system calls of POSIX answer on a granted folder (rw), as root in the guest, in an empty folder:
// prints a line for each answer that is not the expected one. Where a grant differs from a local file system
// on purpose, the row says so; docs/mounts.md lists the same differences.
#pragma once

namespace anchorhold::mounts {

inline constexpr const char posix_table[] = R"py(
import errno as E, os, socket, stat, time
os.umask(0o022)
def wants(name, expected, call):
    try: got = call()
    except OSError as error: got = error.errno
    if got != expected and not (callable(expected) and expected(got)):
        print(f'{name}: {E.errorcode.get(got, got)} and not {E.errorcode.get(expected, expected)}')
def made(name, text='x'): open(name, 'w').write(text); return name
def folder(name): os.mkdir(name); return name
def does(call): call(); return 0
made('file'); folder('dir'); folder('full'); made('full/inner'); os.symlink('file', 'link'); os.symlink('nowhere', 'dangling')
os.symlink('loop2', 'loop1'); os.symlink('loop1', 'loop2'); long = 'n' * 256

# mkdir, rmdir
wants('mkdir existing file', E.EEXIST, lambda: os.mkdir('file'))
wants('mkdir existing folder', E.EEXIST, lambda: os.mkdir('dir'))
wants('mkdir dangling link', E.EEXIST, lambda: os.mkdir('dangling'))
wants('mkdir no parent', E.ENOENT, lambda: os.mkdir('none/x'))
wants('mkdir beneath file', E.ENOTDIR, lambda: os.mkdir('file/x'))
wants('mkdir long name', E.ENAMETOOLONG, lambda: os.mkdir(long))
wants('mkdir in a loop', E.ELOOP, lambda: os.mkdir('loop1/x'))
wants('mkdir mode and umask', 0o40750, lambda: (os.mkdir('m1', 0o772), os.stat('m1').st_mode)[1])
wants('mkdir of 255 bytes', 0, lambda: does(lambda: (os.mkdir(long[1:]), os.rmdir(long[1:]))))
wants('rmdir not empty', E.ENOTEMPTY, lambda: os.rmdir('full'))
wants('rmdir file', E.ENOTDIR, lambda: os.rmdir('file'))
wants('rmdir link', E.ENOTDIR, lambda: os.rmdir('link'))
wants('rmdir none', E.ENOENT, lambda: os.rmdir('none'))
wants('rmdir dot', E.EINVAL, lambda: os.rmdir('dir/.'))
wants('rmdir dotdot', lambda got: got in (E.ENOTEMPTY, E.EINVAL), lambda: os.rmdir('dir/..'))
wants('rmdir', E.ENOENT, lambda: (os.mkdir('r'), os.rmdir('r'), os.stat('r')))
# unlink
wants('unlink folder', lambda got: got in (E.EISDIR, E.EPERM), lambda: os.unlink('dir'))
wants('unlink none', E.ENOENT, lambda: os.unlink('none'))
wants('unlink beneath file', E.ENOTDIR, lambda: os.unlink('file/x'))
wants('unlink long name', E.ENAMETOOLONG, lambda: os.unlink(long))
wants('unlink dangling link', E.ENOENT, lambda: (os.symlink('no', 'd2'), os.unlink('d2'), os.lstat('d2')))
def unlinked_open():
    fd = os.open(made('u'), os.O_RDWR); os.unlink('u'); os.write(fd, b'yz'); os.lseek(fd, 0, 0)
    got = (os.fstat(fd).st_nlink, os.read(fd, 9)); os.close(fd); return got
wants('an unlinked open file lives', (0, b'yz'), unlinked_open)
# open
wants('open none', E.ENOENT, lambda: os.open('none', os.O_RDONLY))
wants('open exclusive', E.EEXIST, lambda: os.open('file', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
wants('open exclusive dangling', E.EEXIST, lambda: os.open('dangling', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
wants('open folder to write', E.EISDIR, lambda: os.open('dir', os.O_WRONLY))
wants('open O_DIRECTORY of file', E.ENOTDIR, lambda: os.open('file', os.O_DIRECTORY))
wants('open O_NOFOLLOW', E.ELOOP, lambda: os.open('link', os.O_NOFOLLOW))
wants('open loop', E.ELOOP, lambda: os.open('loop1', os.O_RDONLY))
wants('open long name', E.ENAMETOOLONG, lambda: os.open(long, os.O_CREAT | os.O_WRONLY))
wants('open beneath file', E.ENOTDIR, lambda: os.open('file/x', os.O_CREAT | os.O_WRONLY))
wants('open with a slash behind', E.EISDIR, lambda: os.open('fresh/', os.O_CREAT | os.O_WRONLY))
wants('open mode and umask', 0o100640, lambda: (os.close(os.open('o1', os.O_CREAT | os.O_WRONLY, 0o662)), os.stat('o1').st_mode)[1])
wants('write to a read descriptor', E.EBADF, lambda: os.write(os.open('file', os.O_RDONLY), b'x'))
wants('read from a write descriptor', E.EBADF, lambda: os.read(os.open('file', os.O_WRONLY), 1))
wants('create by a dangling link', 1, lambda: (made('dangling'), os.stat('nowhere').st_size)[1])
def appended():
    a, b = (os.open('ap', os.O_CREAT | os.O_WRONLY | os.O_APPEND) for _ in 'ab')
    for _ in range(3): os.write(a, b'a'); os.write(b, b'b')
    return open('ap').read()
wants('append goes to the end', 'ababab', appended)
# link
wants('link existing', E.EEXIST, lambda: os.link('file', 'dir'))
wants('link none', E.ENOENT, lambda: os.link('none', 'l1'))
wants('link folder', E.EPERM, lambda: os.link('dir', 'l1'))
wants('link beneath file', E.ENOTDIR, lambda: os.link('file', 'file/x'))
wants('link long name', E.ENAMETOOLONG, lambda: os.link('file', long))
wants('link counts', (3, 2), lambda: (made('lc'), os.link('lc', 'lc2'), os.link('lc', 'lc3'), os.stat('lc').st_nlink, os.unlink('lc2'), os.stat('lc3').st_nlink)[3::2])
wants('link is the same file', True, lambda: os.path.samefile('lc', 'lc3'))
wants('link of a symlink', True, lambda: (os.link('link', 'link2', follow_symlinks=False), os.path.islink('link2'))[1])
# rename
wants('rename none', E.ENOENT, lambda: os.rename('none', 'x'))
wants('rename folder over file', E.ENOTDIR, lambda: os.rename('dir', 'file'))
wants('rename file over folder', E.EISDIR, lambda: os.rename('file', 'dir'))
wants('rename over a full folder', lambda got: got in (E.ENOTEMPTY, E.EEXIST), lambda: os.rename('dir', 'full'))
wants('rename into itself', E.EINVAL, lambda: os.rename('full', 'full/deeper'))
wants('rename over its parent', lambda got: got in (E.ENOTEMPTY, E.EEXIST, E.EINVAL), lambda: os.rename('full/inner', 'full') if False else os.rename(folder('full/sub'), 'full'))
wants('rename dot', lambda got: got in (E.EINVAL, E.EBUSY), lambda: os.rename('dir/.', 'x'))
wants('rename long name', E.ENAMETOOLONG, lambda: os.rename('file', long))
wants('rename to no parent', E.ENOENT, lambda: os.rename('file', 'none/x'))
wants('rename of two names of one file', True, lambda: (made('s1'), os.link('s1', 's2'), os.rename('s1', 's2'), os.path.exists('s1') and os.path.exists('s2'))[3])
wants('rename over an empty folder', True, lambda: (folder('e1'), folder('e2'), os.rename('e1', 'e2'), os.path.isdir('e2') and not os.path.exists('e1'))[3])
wants('rename over a file', 'new', lambda: (made('n1', 'new'), made('n2', 'old'), os.rename('n1', 'n2'), open('n2').read())[3])
wants('rename moves a symlink itself', True, lambda: (os.symlink('file', 'y1'), os.rename('y1', 'y2'), os.path.islink('y2'))[2])
wants('rename of a folder keeps what is in it', 'x', lambda: (os.rename('full', 'full2'), open('full2/inner').read(), os.rename('full2', 'full'))[1])
# symlink, readlink
wants('symlink existing', E.EEXIST, lambda: os.symlink('a', 'file'))
wants('symlink empty', E.ENOENT, lambda: os.symlink('', 'sy0'))
wants('symlink long name', E.ENAMETOOLONG, lambda: os.symlink('a', long))
wants('symlink long target', E.ENAMETOOLONG, lambda: os.symlink('t' * 4096, 'sy1'))
wants('symlink target of 4,095 bytes', 't' * 4095, lambda: (os.symlink('t' * 4095, 'sy2'), os.readlink('sy2'))[1])
wants('readlink of a file', E.EINVAL, lambda: os.readlink('file'))
wants('readlink any bytes', b'\xff\x01 \n', lambda: (os.symlink(b'\xff\x01 \n', b'sy3'), os.readlink(b'sy3'))[1])
# truncate
wants('truncate folder', E.EISDIR, lambda: os.truncate('dir', 0))
wants('truncate none', E.ENOENT, lambda: os.truncate('none', 0))
wants('truncate negative', E.EINVAL, lambda: os.truncate('file', -1))
wants('truncate too large', lambda got: got in (E.EFBIG, E.EINVAL), lambda: os.truncate('file', (1 << 63) - 1))
wants('ftruncate of a read descriptor', lambda got: got in (E.EINVAL, E.EBADF), lambda: os.ftruncate(os.open('file', os.O_RDONLY), 0))
wants('truncate grows with zeros', b'ab\0\0\0', lambda: (made('t1', 'ab'), os.truncate('t1', 5), open('t1', 'rb').read())[2])
wants('truncate shrinks', b'a', lambda: (os.truncate('t1', 1), open('t1', 'rb').read())[1])
# chmod, chown
for mode in list(range(0o1000)) + [0o1777, 0o1000]:
    if mode % 37 == 0 or mode > 0o777 or mode in (0o777, 0o644, 0o755, 0o400):
        wants(f'chmod {mode:o}', mode, lambda: (os.chmod('dir', mode), stat.S_IMODE(os.stat('dir').st_mode))[1])
os.chmod('dir', 0o755)
wants('chmod none', E.ENOENT, lambda: os.chmod('none', 0o644))
wants('chmod by a link', 0o600, lambda: (os.chmod('link', 0o600), stat.S_IMODE(os.stat('file').st_mode))[1])
wants('chmod setuid (on purpose: EPERM)', E.EPERM, lambda: os.chmod('file', 0o4755))
wants('chmod setgid (on purpose: EPERM)', E.EPERM, lambda: os.chmod('file', 0o2755))
wants('chown to another (on purpose: EPERM)', E.EPERM, lambda: os.chown('file', 4711, -1))
wants('chgrp to another (on purpose: EPERM)', E.EPERM, lambda: os.chown('file', -1, 4711))
wants('chown to whose it is', 0, lambda: does(lambda: os.chown('file', os.stat('file').st_uid, os.stat('file').st_gid)))
# utimens
wants('utimens in nanoseconds', (123456789123456789, 987654321987654321), lambda: (os.utime('file', ns=(123456789123456789, 987654321987654321)), os.stat('file').st_atime_ns, os.stat('file').st_mtime_ns)[1:])
wants('utimens before 1970', -1500000000, lambda: (os.utime('file', ns=(0, -1500000000)), os.stat('file').st_mtime_ns)[1])
wants('utimens now', True, lambda: (os.utime('file'), abs(time.time() - os.stat('file').st_mtime) < 100)[1])
wants('utimens of a symlink itself', 5, lambda: (os.utime('link', (5, 5), follow_symlinks=False), int(os.lstat('link').st_mtime))[1])
wants('utimens none', E.ENOENT, lambda: os.utime('none'))
# times that follow changes
def changes(what, of='dir', field='st_mtime_ns'):
    os.utime(of, (1, 1)); before = getattr(os.stat(of), field); what(); return getattr(os.stat(of), field) != before
wants('create changes its folder', True, lambda: changes(lambda: made('dir/a')))
wants('unlink changes its folder', True, lambda: changes(lambda: os.unlink('dir/a')))
wants('mkdir changes its folder', True, lambda: changes(lambda: os.mkdir('dir/b')))
wants('rename changes its folder', True, lambda: changes(lambda: os.rename('dir/b', 'dir/c')))
wants('write changes the file', True, lambda: changes(lambda: made('file', 'zz'), 'file'))
wants('truncate changes the file', True, lambda: changes(lambda: os.truncate('file', 1), 'file'))
wants('a folder counts its folders', 1, lambda: (os.rmdir('dir/c'), -os.stat('dir').st_nlink, os.mkdir('dir/d'), os.stat('dir').st_nlink)[3] - 2)
# nodes that are not made
for kind, name in ((stat.S_IFIFO, 'fifo'), (stat.S_IFSOCK, 'socket'), (stat.S_IFCHR, 'character device'), (stat.S_IFBLK, 'block device')):
    wants(f'mknod {name} (on purpose: EPERM)', E.EPERM, lambda: os.mknod('node', kind | 0o600, os.makedev(1, 3)))
wants('mkfifo (on purpose: EPERM)', E.EPERM, lambda: os.mkfifo('fifo'))
wants('bind (on purpose: EPERM)', E.EPERM, lambda: socket.socket(socket.AF_UNIX).bind('door'))
wants('mknod of a file', True, lambda: (os.mknod('regular', 0o600), os.path.isfile('regular'))[1])
# attributes, holes, space
wants('xattr', b'v', lambda: (os.setxattr('file', 'user.x', b'v'), os.getxattr('file', 'user.x'))[1])
wants('xattr exclusive', E.EEXIST, lambda: os.setxattr('file', 'user.x', b'v', os.XATTR_CREATE))
wants('xattr replace none', E.ENODATA, lambda: os.setxattr('file', 'user.y', b'v', os.XATTR_REPLACE))
wants('xattr none', E.ENODATA, lambda: os.getxattr('file', 'user.y'))
wants('xattr of the system (on purpose: EOPNOTSUPP)', E.EOPNOTSUPP, lambda: os.setxattr('file', 'trusted.x', b'v'))
wants('xattr of a symlink', lambda got: got in (E.EPERM, E.EOPNOTSUPP), lambda: os.setxattr('link', 'user.x', b'v', follow_symlinks=False))
wants('fallocate', 70000, lambda: (os.posix_fallocate(os.open('fa', os.O_CREAT | os.O_RDWR), 0, 70000), os.stat('fa').st_size)[1])
wants('seek hole', (1 << 20, 0), lambda: (os.truncate(made('h', ''), 1 << 20), os.lseek(os.open('h', os.O_RDONLY), 0, os.SEEK_END), os.stat('h').st_blocks)[1:])
wants('a folder that is not empty lists itself', ['inner', 'sub'], lambda: sorted(os.listdir('full')))
wants('O_TMPFILE (on purpose: EOPNOTSUPP)', E.EOPNOTSUPP, lambda: os.open('dir', os.O_TMPFILE | os.O_RDWR))
)py";

}  // namespace anchorhold::mounts
