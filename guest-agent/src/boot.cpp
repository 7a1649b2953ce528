#include "boot.h"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "accounts.h"
#include "base/fd.h"
#include "system.h"

namespace anchorhold::guest {
namespace {

Status mount_at(const char* type, const char* source, const std::string& target, unsigned long flags,
                const std::string& options = {}) {
  if (mkdir(target.c_str(), 0755) != 0 && errno != EEXIST && errno != EROFS) return fail_errno(errno, target);
  if (mount(source, target.c_str(), type, flags, options.c_str()) != 0 && errno != EBUSY)
    return fail_errno(errno, fmt::format("mounting {} at {}", type, target));
  return {};
}

Status mount_kernel_file_systems() {
  ANCHORHOLD_CHECK(mount_at("proc", "proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  ANCHORHOLD_CHECK(mount_at("sysfs", "sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  return mount_at("devtmpfs", "devtmpfs", "/dev", MS_NOSUID, "mode=0755");
}

Status mount_the_rest() {
  ANCHORHOLD_CHECK(
      mount_at("devpts", "devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "mode=0620,gid=5,ptmxmode=0666"));
  ANCHORHOLD_CHECK(mount_at("tmpfs", "tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777"));
  ANCHORHOLD_CHECK(mount_at("tmpfs", "tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755,size=16m"));
  ANCHORHOLD_CHECK(mount_at("cgroup2", "cgroup2", group_mount, MS_NOSUID | MS_NODEV | MS_NOEXEC));
  // Conveniences of every Linux system; where the image has them already they stay.
  (void)!symlink("/proc/self/fd", "/dev/fd");
  (void)!symlink("/proc/self/fd/0", "/dev/stdin");
  (void)!symlink("/proc/self/fd/1", "/dev/stdout");
  (void)!symlink("/proc/self/fd/2", "/dev/stderr");
  mkdir("/tmp", 01777);
  chmod("/tmp", 01777);
  mkdir("/mnt", 0755);
  return {};
}

Result<std::string> read_command_line() {
  UniqueFd file(open("/proc/cmdline", O_RDONLY | O_CLOEXEC));
  std::string text(16384, '\0');
  ssize_t got = file ? read(file.get(), text.data(), text.size()) : -1;
  if (got < 0) return fail_errno(errno, "/proc/cmdline");
  text.resize(static_cast<std::size_t>(got));
  return text;
}

// The kernel makes the device before it starts us; a slow bus may be later than that.
Status wait_for_device(const std::string& path) {
  constexpr int attempts = 500;
  for (int attempt = 0; access(path.c_str(), F_OK) != 0; ++attempt) {
    if (attempt == attempts)
      return fail(ErrorCode::not_found, fmt::format("there is no {} after 5 seconds", path));
    usleep(10'000);
  }
  return {};
}

// Everything of the initramfs on its own file system: it is memory that nobody can use any more. The program
// itself stays, because it runs.
void remove_tree(int parent, const char* name, dev_t device) {
  UniqueFd directory(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (directory && fstat(directory.get(), &info) == 0 && info.st_dev == device) {
    std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(dup(directory.get())), closedir);
    while (dirent* entry = entries ? readdir(entries.get()) : nullptr) {
      if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
      remove_tree(directory.get(), entry->d_name, device);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
  } else if (!directory) {
    unlinkat(parent, name, 0);
  }
}

void free_initramfs(int old_root) {
  struct stat info {};
  fstat(old_root, &info);
  std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(dup(old_root)), closedir);
  while (dirent* entry = entries ? readdir(entries.get()) : nullptr) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    remove_tree(old_root, entry->d_name, info.st_dev);
  }
}

// switch_root(8), without starting another program: the new root is moved over the old one.
Status move_onto(const std::string& root) {
  UniqueFd old_root(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!old_root) return fail_errno(errno, "/");
  for (const char* name : {"/proc", "/sys", "/dev"}) {
    std::string target = root + name;
    mkdir(target.c_str(), 0755);
    if (mount(name, target.c_str(), nullptr, MS_MOVE, nullptr) != 0)
      return fail_errno(errno, fmt::format("moving {} to {}", name, target));
  }
  if (chdir(root.c_str()) != 0) return fail_errno(errno, root);
  free_initramfs(old_root.get());
  if (mount(".", "/", nullptr, MS_MOVE, nullptr) != 0) return fail_errno(errno, "moving the root into place");
  if (chroot(".") != 0 || chdir("/") != 0) return fail_errno(errno, "changing the root");
  return {};
}

Status move_onto_root(const BootWords& words) {
  ANCHORHOLD_CHECK(wait_for_device(words.root));
  std::uint64_t scratch = words.scratch_bytes.value_or(read_memory_info().total_bytes / 2);
  ANCHORHOLD_CHECK(mount_at("erofs", words.root.c_str(), "/below", MS_RDONLY | MS_NODEV));
  ANCHORHOLD_CHECK(
      mount_at("tmpfs", "scratch", "/above", MS_NODEV, fmt::format("mode=0755,size={}", scratch)));
  for (const char* name : {"/above/upper", "/above/work", "/root.new"})
    if (mkdir(name, 0755) != 0) return fail_errno(errno, name);
  ANCHORHOLD_CHECK(mount_at("overlay", "root", "/root.new", MS_NODEV,
                            "lowerdir=/below,upperdir=/above/upper,workdir=/above/work"));
  return move_onto("/root.new");
}

void bring_up_loopback() {
  UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  strcpy(request.ifr_name, "lo");
  if (!any || ioctl(any.get(), SIOCGIFFLAGS, &request) != 0) return;
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  (void)ioctl(any.get(), SIOCSIFFLAGS, &request);
}

void write_if_missing(const char* path, const char* text) {
  UniqueFd file(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file) (void)!write(file.get(), text, strlen(text));
}

void name_the_guest() {
  constexpr const char* name = "anchorhold";
  (void)!sethostname(name, strlen(name));
  mkdir("/etc", 0755);
  write_if_missing("/etc/hosts", "127.0.0.1 localhost anchorhold\n::1 localhost\n");
  write_if_missing("/etc/hostname", "anchorhold\n");
}

// The default user's home: in the image, where it has one, else made.
void make_home() {
  auto account = find_account("");
  if (!account || account->home == "/" || access(account->home.c_str(), F_OK) == 0) return;
  mkdir("/home", 0755);
  if (mkdir(account->home.c_str(), 0755) == 0)
    (void)!chown(account->home.c_str(), account->uid, account->gid);
}

}  // namespace

Status boot() {
  umask(022);
  ANCHORHOLD_CHECK(mount_kernel_file_systems());
  std::string command_line = ANCHORHOLD_TRY(read_command_line());
  BootWords words = ANCHORHOLD_TRY(parse_boot_words(command_line));
  if (!words.root.empty()) ANCHORHOLD_CHECK(move_onto_root(words));
  ANCHORHOLD_CHECK(mount_the_rest());
  bring_up_loopback();
  name_the_guest();
  make_home();
  return {};
}

}  // namespace anchorhold::guest
