#include "object.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file_time.h"

namespace anchorhold::mounts {
namespace {

Timestamp timestamp(const statx_timestamp& time) {
  return {time.tv_sec, time.tv_nsec, 0};
}

Checked<Attributes> stat_with(int fd, const char* name, int flags) {
  struct statx info;
  if (statx(fd, name, flags | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME,
            &info) != 0)
    return refuse_with(errno);
  Attributes attributes{};
  attributes.device = makedev(info.stx_dev_major, info.stx_dev_minor);
  attributes.inode = info.stx_ino;
  attributes.size = info.stx_size;
  attributes.blocks = info.stx_blocks;
  attributes.mode = info.stx_mode;
  attributes.links = info.stx_nlink;
  attributes.access_time = timestamp(info.stx_atime);
  attributes.modify_time = timestamp(info.stx_mtime);
  attributes.change_time = timestamp(info.stx_ctime);
  if (info.stx_mask & STATX_BTIME) attributes.birth_time = timestamp(info.stx_btime);
  return attributes;
}

}  // namespace

std::int64_t nanoseconds(const Timestamp& time) {
  return file_time_nanoseconds(time.seconds, time.nanoseconds);
}

Identity identity_of(const Attributes& attributes, std::uint64_t generation) {
  return {attributes.device, attributes.inode, nanoseconds(attributes.birth_time), generation};
}

namespace {

std::uint64_t handle_number(int fd, const char* name, int flags) {
  alignas(file_handle) unsigned char buffer[sizeof(file_handle) + MAX_HANDLE_SZ] = {};
  auto* handle = reinterpret_cast<file_handle*>(buffer);
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount_id;
  if (name_to_handle_at(fd, name, handle, &mount_id, flags) != 0) return 0;
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (std::size_t i = 0; i < handle->handle_bytes; ++i)
    hash = (hash ^ buffer[sizeof(file_handle) + i]) * 0x100000001b3ull;
  return hash == 0 ? 1 : hash;
}

}  // namespace

std::uint64_t generation_of(int fd) {
  return handle_number(fd, "", AT_EMPTY_PATH);
}

std::uint64_t generation_at(int folder_fd, const std::string& name) {
  return handle_number(folder_fd, name.c_str(), 0);
}

Checked<Located> locate_beneath(int folder_fd, const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  Located located;
  long opened = -1;
  // EAGAIN: somebody renamed something above while the kernel walked.
  for (int attempt = 0; attempt < 32 && opened < 0; ++attempt) {
    opened = syscall(SYS_openat2, folder_fd, path.empty() ? "." : path.c_str(), &how, sizeof how);
    if (opened < 0 && errno != EAGAIN) return refuse_with(errno);
  }
  if (opened < 0) return refuse_with(EAGAIN);
  located.fd = UniqueFd(static_cast<int>(opened));
  auto attributes = attributes_of(located.fd.get());
  if (!attributes) return refuse_with(attributes.error());
  located.attributes = *attributes;
  located.generation = generation_of(located.fd.get());
  located.path = path;
  return located;
}

std::pair<std::string, std::string> folder_and_name(const std::string& path) {
  auto slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

bool is_same(const Attributes& a, const Attributes& b) {
  return identity_of(a, 0) == identity_of(b, 0);
}

Checked<Attributes> attributes_of(int fd) {
  return stat_with(fd, "", AT_EMPTY_PATH);
}

Checked<Attributes> attributes_at(int folder_fd, const std::string& name) {
  return stat_with(folder_fd, name.c_str(), 0);
}

std::string descriptor_path(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

}  // namespace anchorhold::mounts
