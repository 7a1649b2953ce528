#include "routes.h"

#include <cerrno>

namespace anchorhold::mounts {

const char* const route_prelude = R"py(
import ctypes, errno, fcntl, mmap, os, shutil, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def check(done):
    if done < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
def renameat2(old, new, flags): check(libc.renameat2(-100, old.encode(), -100, new.encode(), flags))
def fallocate(name, mode, offset, size):
    fd = os.open(name, os.O_RDWR)
    try: check(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)))
    finally: os.close(fd)
def write(name, flags, data=b'NEW'):
    fd = os.open(name, flags)
    os.write(fd, data); os.close(fd)
def openat2(name, flags, resolve):
    fd = libc.syscall(437, -100, name.encode(), struct.pack('QQQ', flags, 0, resolve), 24)
    check(fd); os.close(fd)
def open_by_handle(name, flags):
    handle, mount = ctypes.create_string_buffer(8 + 128), ctypes.c_int()
    struct.pack_into('I', handle, 0, 128)
    check(libc.name_to_handle_at(-100, name.encode(), handle, ctypes.byref(mount), 0))
    fd = libc.open_by_handle_at(os.open('.', os.O_RDONLY), handle, flags)
    check(fd); return fd
def race(name):
    ends = threading.Event()
    def writes():
        while not ends.is_set():
            try: write(name, os.O_RDWR)
            except OSError: pass
    threads = [threading.Thread(target=writes) for _ in range(3)]
    for thread in threads: thread.start()
    try:
        for attempt in range(50):
            for change in (lambda: write('new', os.O_CREAT | os.O_WRONLY), lambda: os.rename('new', name), lambda: os.unlink(name)):
                try: change()
                except OSError: pass
    finally:
        ends.set()
        for thread in threads: thread.join()
)py";

const std::vector<Route>& routes() {
  static const std::vector<Route> all = {
      {"unlink", "os.unlink('victim')", 0, EACCES},
      {"unlink_symlink", "os.unlink('to_victim')", 0, EACCES},
      {"rmdir", "os.rmdir('empty')", 0, EACCES},
      {"remove_tree", "shutil.rmtree('old')", 0, EACCES},
      {"rename_away", "os.rename('victim', 'elsewhere')", 0, EACCES},
      {"rename_into_own_folder", "os.rename('victim', 'own_folder/victim')", 0, EACCES},
      {"rename_case_only", "os.rename('victim', 'VICTIM')", 0, EACCES},
      {"rename_over", "os.rename('own', 'victim')", 0, 0},
      {"rename_old_over_old", "os.rename('other', 'victim')", 0, EACCES},
      {"rename_over_then_unlink", "os.rename('own', 'victim'); os.unlink('victim')", 0, EACCES},
      {"rename_exchange", "renameat2('own', 'victim', 2)", 0, EACCES},
      {"rename_exchange_backwards", "renameat2('victim', 'own', 2)", 0, EACCES},
      {"rename_exchange_folders", "renameat2('own_folder', 'old', 2)", 0, EACCES},
      {"rename_noreplace", "renameat2('victim', 'elsewhere', 1)", 0, EACCES},
      {"rename_noreplace_onto", "renameat2('own', 'victim', 1)", EEXIST, EEXIST},
      {"link_then_unlink", "os.link('victim', 'second'); os.unlink('victim')", 0, EACCES},
      // The session's own second name has become the last one.
      {"link_then_rename", "os.link('victim', 'second'); os.rename('own', 'victim'); os.unlink('second')", 0,
       EACCES},
      {"link_then_rename_away", "os.link('victim', 'second'); os.rename('victim', 'third')", 0, EACCES},
      {"open_truncating", "open('victim', 'w').close()", 0, 0},
      {"open_creating_and_truncating", "os.close(os.open('victim', os.O_CREAT | os.O_TRUNC | os.O_WRONLY))",
       0, 0},
      {"open_reading_and_truncating", "os.close(os.open('victim', os.O_TRUNC | os.O_RDONLY))", 0, 0},
      {"truncate", "os.truncate('victim', 1)", 0, 0},
      {"ftruncate", "fd = os.open('victim', os.O_RDWR); os.ftruncate(fd, 1); os.close(fd)", 0, 0},
      {"overwrite", "write('victim', os.O_WRONLY)", 0, 0},
      {"append", "write('victim', os.O_WRONLY | os.O_APPEND)", 0, 0},
      {"punch_hole", "fallocate('victim', 3, 0, 4096)", 0, 0, true},
      {"zero_range", "fallocate('victim', 16, 0, 4096)", 0, 0, true},
      {"collapse_range", "fallocate('victim', 8, 0, 4096)", 0, 0, true},
      {"insert_range", "fallocate('victim', 32, 0, 4096)", 0, 0, true},
      {"copy_file_range",
       "a = os.open('own', os.O_RDONLY); b = os.open('victim', os.O_WRONLY); os.copy_file_range(a, b, 3)", 0,
       0},
      {"sendfile",
       "a = os.open('own', os.O_RDONLY); b = os.open('victim', os.O_WRONLY); os.sendfile(b, a, 0, 3)", 0, 0},
      {"mapped_write",
       "f = open('victim', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:3] = b'NEW'; m.flush(); m.close()", 0, 0},
      {"write_by_own_second_name", "os.link('victim', 'second'); write('second', os.O_WRONLY | os.O_TRUNC)",
       0, 0},
      {"write_by_old_second_name", "write('hard', os.O_WRONLY | os.O_TRUNC)", 0, 0},
      {"write_by_symlink", "write('to_victim', os.O_WRONLY | os.O_TRUNC)", 0, 0},
      {"write_by_own_symlink", "os.symlink('victim', 'mine'); write('mine', os.O_WRONLY | os.O_TRUNC)", 0, 0},
      {"write_by_descriptor_path",
       "fd = os.open('victim', os.O_RDONLY); write(f'/proc/self/fd/{fd}', os.O_WRONLY | os.O_TRUNC)", 0, 0},
      {"open_appending_and_truncating", "write('victim', os.O_WRONLY | os.O_APPEND | os.O_TRUNC)", 0, 0},
      {"open_truncating_without_access", "os.close(os.open('victim', 3 | os.O_TRUNC))", 0, 0},
      {"openat2_truncating", "openat2('victim', os.O_RDWR | os.O_TRUNC, 0x08 | 0x04)", 0, 0},
      {"open_by_handle",
       "fd = open_by_handle('victim', os.O_RDWR | os.O_TRUNC); os.write(fd, b'NEW'); os.close(fd)", 0, 0},
      {"truncate_by_descriptor_path",
       "fd = os.open('victim', os.O_PATH); os.truncate(f'/proc/self/fd/{fd}', 0); os.close(fd)", 0, 0},
      {"write_directly",
       "fd = os.open('victim', os.O_WRONLY | os.O_DIRECT); os.write(fd, mmap.mmap(-1, 4096)); os.close(fd)",
       0, 0},
      {"splice",
       "r, w = os.pipe(); os.write(w, b'NEW'); fd = os.open('victim', os.O_WRONLY); os.splice(r, fd, 3); "
       "os.close(fd)",
       0, 0},
      {"copy_within_itself",
       "a = os.open('victim', os.O_RDWR); b = os.open('victim', os.O_RDWR); os.copy_file_range(a, b, 100, 0, "
       "4000)",
       0, 0},
      {"clone_over", "fcntl.ioctl(os.open('victim', os.O_RDWR), 0x40049409, os.open('own', os.O_RDONLY))", 0,
       0, true},
      {"mapped_write_after_the_mode",
       "fd = os.open('victim', os.O_RDWR); m = mmap.mmap(fd, 0); os.chmod('victim', 0o400); os.close(fd); "
       "m[:3] = b'NEW'; m.flush(); m.close()",
       0, 0},
      {"write_over_a_remount",
       "fd = os.open('victim', os.O_RDWR); os.system('mount -o remount,ro . 2>/dev/null; mount -o remount,rw "
       ". "
       "2>/dev/null'); os.write(fd, b'NEW'); os.close(fd)",
       0, 0},
      {"write_after_unlink",
       "fd = os.open('victim', os.O_RDWR); os.unlink('victim'); os.write(fd, b'NEW'); os.ftruncate(fd, 3); "
       "os.fsync(fd); os.close(fd)",
       0, EACCES},
      {"write_after_replacing",
       "fd = os.open('victim', os.O_RDWR); os.rename('own', 'victim'); os.write(fd, b'NEW'); "
       "os.ftruncate(fd, 3); "
       "os.fsync(fd); os.close(fd)",
       0, 0},
      {"mapped_write_after_unlink",
       "fd = os.open('victim', os.O_RDWR); m = mmap.mmap(fd, 0); os.unlink('victim'); m[:3] = b'NEW'; "
       "m.flush(); "
       "m.close()",
       0, EACCES},
      // What only was read is the ledger's alone once its name is gone.
      {"reopen_after_unlink",
       "fd = os.open('victim', os.O_RDONLY); os.unlink('victim'); write(f'/proc/self/fd/{fd}', os.O_WRONLY)",
       ESTALE, EACCES},
      {"truncate_after_unlink",
       "fd = os.open('victim', os.O_RDONLY); os.unlink('victim'); os.truncate(f'/proc/self/fd/{fd}', 0)",
       ESTALE, EACCES},
      {"writers_and_replacers_at_once", "race('victim')", 0, 0},
      {"rename_whiteout", "renameat2('victim', 'elsewhere', 4)", EINVAL, EINVAL},
      {"rename_whiteout_over", "renameat2('own', 'victim', 4)", EINVAL, EINVAL},
      {"exchange_and_noreplace", "renameat2('own', 'victim', 3)", EINVAL, EINVAL},
      {"xattr_removed", "os.removexattr('victim', 'user.old')", 0, 0},
      {"xattr_emptied", "os.setxattr('victim', 'user.old', b'')", 0, 0},
      {"mode_taken", "os.chmod('victim', 0o400); os.chmod('old', 0o500)", 0, 0},
      {"times_set",
       "os.utime('victim', (1, 1)); os.utime('old', (1, 1)); os.utime('to_victim', (1, 1), "
       "follow_symlinks=False)",
       0, 0},
      {"file_becomes_folder",
       "os.unlink('victim'); os.mkdir('victim'); write('victim/x', os.O_CREAT | os.O_WRONLY)", 0, EACCES},
      {"folder_becomes_file", "shutil.rmtree('old'); write('old', os.O_CREAT | os.O_WRONLY)", 0, EACCES},
      {"symlink_over_file", "os.symlink('/etc/passwd', 'mine'); os.rename('mine', 'victim')", 0, 0},
      {"file_over_symlink", "os.rename('own', 'to_victim')", 0, 0},
      {"file_over_second_name", "os.rename('own', 'hard')", 0, 0},
      // Its content is not on this computer, so nothing could bring it back.
      {"placeholder_written", "write('remote.odt.nextcloud', os.O_WRONLY)", EACCES, EACCES},
      {"placeholder_truncated", "os.truncate('remote.odt.nextcloud', 0)", EACCES, EACCES},
      {"placeholder_replaced", "os.rename('own', 'remote.odt.nextcloud')", EACCES, EACCES},
      {"placeholder_removed", "os.unlink('remote.odt.nextcloud')", EACCES, EACCES},
      {"replace_folder", "os.rename('own_folder', 'old')", ENOTEMPTY, ENOTEMPTY},
      {"replace_empty_folder", "os.rename('own_folder', 'empty')", 0, 0},
      {"folder_away", "os.rename('old', 'own_folder/old')", 0, EACCES},
      {"folder_away_and_own_there", "os.rename('old', 'elsewhere'); os.rename('own_folder', 'old')", 0,
       EACCES},
      {"mount_over_and_unlink",
       "os.system('mount -t tmpfs none old'); os.system('umount old'); os.unlink('victim')", 0, EACCES},
      {"remount_and_unlink", "os.system('mount -o remount,rw .. 2>/dev/null'); os.unlink('victim')", 0,
       EACCES},
  };
  return all;
}

}  // namespace anchorhold::mounts
