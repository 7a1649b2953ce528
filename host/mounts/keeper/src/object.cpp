#include "object.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>

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

Identity identity_of(const Attributes& attributes, std::uint64_t generation) {
  const Timestamp& birth = attributes.birth_time;
  return {attributes.device, attributes.inode, birth.seconds * 1'000'000'000 + birth.nanoseconds, generation};
}

std::uint64_t generation_of(int fd) {
  alignas(file_handle) unsigned char buffer[sizeof(file_handle) + MAX_HANDLE_SZ] = {};
  auto* handle = reinterpret_cast<file_handle*>(buffer);
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount_id;
  if (name_to_handle_at(fd, "", handle, &mount_id, AT_EMPTY_PATH) != 0) return 0;
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (std::size_t i = 0; i < handle->handle_bytes; ++i)
    hash = (hash ^ buffer[sizeof(file_handle) + i]) * 0x100000001b3ull;
  return hash == 0 ? 1 : hash;
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
