#include "libvirt/embed_folder.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>
#include <utility>

#include "base/id.h"
#include "reaper/reaping.h"

namespace anchorhold::hypervisor {
namespace {

// unix(7) allows 107 bytes; libvirt puts "/lib/qemu/domain-12345-" + 20 of the name + "/monitor.sock" behind
// the folder.
constexpr std::size_t longest_folder = 107 - 60;

Status check_root_user() {
  // libvirt's driver looks both up at its start as root and gives up without them, whatever its configuration
  // says.
  if (getpwnam("libvirt-qemu") && getgrnam("libvirt-qemu")) return {};
  return fail(ErrorCode::failed_precondition,
              "libvirt cannot run as root here: the user and group 'libvirt-qemu' do not exist",
              "run as an ordinary user, or as root: useradd --system --user-group --no-create-home --shell "
              "/usr/sbin/nologin libvirt-qemu");
}

Status link_cache(const std::filesystem::path& link, const std::filesystem::path& target) {
  ANCHORHOLD_CHECK(make_directories(target));
  if (symlink(target.c_str(), link.c_str()) != 0)
    return fail_errno(errno, fmt::format("linking {} to {}", link.string(), target.string()));
  return {};
}

// The lock comes before the folder: a folder without one would look like a dead host's. Another host that
// sweeps may take the lock between the making and the locking; then another name is tried.
Result<std::pair<std::filesystem::path, FileLock>> claim_folder(
    const std::filesystem::path& runtime_directory) {
  for (int attempt = 0;; ++attempt) {
    auto path = runtime_directory / ("embed-" + random_hex(4));
    if (path.native().size() > longest_folder)
      return fail(ErrorCode::failed_precondition,
                  fmt::format("the folder for sockets has too long a name ({} bytes, at most {}): {}",
                              path.native().size(), longest_folder, path.string()),
                  "set XDG_RUNTIME_DIR to a folder with a shorter name");
    auto lock = FileLock::acquire(lock_of(path), FileLock::Wait::no);
    if (lock && std::filesystem::exists(lock_of(path))) return std::pair(path, std::move(*lock));
    if (attempt == 8)
      return fail(lock ? Error{ErrorCode::unavailable, "no folder could be locked", ""} : lock.error());
  }
}

}  // namespace

std::string qemu_conf(bool as_root) {
  std::string text =
      "# Written by anchorhold at each start.\n"
      "stdio_handler = \"file\"\n"
      "security_driver = \"none\"\n"
      "seccomp_sandbox = 1\n"
      "clear_emulator_capabilities = 1\n"
      "cgroup_controllers = [ ]\n"
      "namespaces = [ ]\n"
      "remember_owner = 0\n"
      "dynamic_ownership = 0\n"
      "max_core = 0\n"
      "vnc_auto_unix_socket = 0\n";
  // The files and sockets of the machine belong to root then, and QEMU has no capabilities to pass over that.
  if (as_root) text += "user = \"root\"\ngroup = \"root\"\n";
  return text;
}

std::string embed_uri(const std::filesystem::path& folder) {
  std::string escaped;
  for (unsigned char c : folder.native()) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
                 c == '.' || c == '_' || c == '-';
    escaped += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return "qemu:///embed?root=" + escaped;
}

Result<std::unique_ptr<EmbedFolder>> EmbedFolder::create(const std::filesystem::path& runtime_directory,
                                                         const std::filesystem::path& cache_directory) {
  const bool as_root = geteuid() == 0;
  if (as_root) ANCHORHOLD_CHECK(check_root_user());
  ANCHORHOLD_CHECK(make_directories(runtime_directory));
  sweep(runtime_directory);
  auto [path, lock] = ANCHORHOLD_TRY(claim_folder(runtime_directory));
  auto folder = std::unique_ptr<EmbedFolder>(new EmbedFolder(path, std::move(lock)));
  ANCHORHOLD_CHECK(make_directories(path / "etc"));
  ANCHORHOLD_CHECK(make_directories(path / "c"));
  ANCHORHOLD_CHECK(write_file_atomic(path / "etc" / "qemu.conf", qemu_conf(as_root)));
  ANCHORHOLD_CHECK(link_cache(path / "cache", cache_directory / "libvirt"));
  folder->reaper_ = ANCHORHOLD_TRY(Reaper::start(path));
  return folder;
}

EmbedFolder::~EmbedFolder() {
  lock_.reset();
  if (reaper_) {
    reaper_.reset();
  } else {
    (void)remove_folder(path_);
  }
}

}  // namespace anchorhold::hypervisor
