#include "routes.h"

#include <cerrno>

namespace anchorhold::mounts {

const char* const route_prelude = R"py(
import ctypes, errno, mmap, os, shutil, sys
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
