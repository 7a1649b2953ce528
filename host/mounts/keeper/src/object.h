// What the keeper knows of one file, folder or symlink, from the kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <tl/expected.hpp>

#include "base/fd.h"
#include "mounts/keeper_protocol.h"

namespace anchorhold::mounts {

// A value, or the errno that goes back to the client.
template <typename T>
using Checked = tl::expected<T, int>;
inline tl::unexpected<int> refuse_with(int error) {
  return tl::unexpected<int>(error);
}

// As statx(2), without owners.
struct Attributes {
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t size;
  std::uint64_t blocks;
  std::uint32_t mode;
  std::uint32_t links;
  Timestamp access_time;
  Timestamp modify_time;
  Timestamp change_time;
  Timestamp birth_time;  // zero where the file system has none
};

// Which object this is, for as long as it lives and also after its inode number was given to another one: the
// birth time and the generation (of the file system's own handle, name_to_handle_at(2)) tell them apart.
// Either is 0 where the file system has none; the birth time alone is only as fine as the kernel's tick.
struct Identity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t birth_ns = 0;
  std::uint64_t generation = 0;
  bool operator==(const Identity&) const = default;
  bool is_certain() const { return birth_ns != 0 || generation != 0; }
};
struct IdentityHash {
  std::size_t operator()(const Identity& identity) const {
    std::uint64_t mixed = identity.inode * 0x9e3779b97f4a7c15ull ^
                          static_cast<std::uint64_t>(identity.birth_ns) ^ identity.generation ^
                          identity.device << 32;
    return static_cast<std::size_t>(mixed ^ mixed >> 29);
  }
};

std::int64_t nanoseconds(const Timestamp& time);
Identity identity_of(const Attributes& attributes, std::uint64_t generation);
// A number made of the object's handle; 0 when the file system has no handles. Also of an O_PATH descriptor.
std::uint64_t generation_of(int fd);
// The same of a name in a folder; a symlink is not followed.
std::uint64_t generation_at(int folder_fd, const std::string& name);
// The same object, when one of the two is held open (so that its inode number cannot have been given away).
bool is_same(const Attributes& a, const Attributes& b);
// Of an open descriptor, also O_PATH; and of a name in a folder, not following a symlink.
Checked<Attributes> attributes_of(int fd);
Checked<Attributes> attributes_at(int folder_fd, const std::string& name);

// A descriptor that several hold; closed with the last of them.
class HeldFd {
 public:
  HeldFd() = default;
  HeldFd(UniqueFd fd) {  // NOLINT(google-explicit-constructor): it is one
    if (fd) fd_ = std::make_shared<const UniqueFd>(std::move(fd));
  }
  int get() const { return fd_ ? fd_->get() : -1; }
  explicit operator bool() const { return fd_ != nullptr; }

 private:
  std::shared_ptr<const UniqueFd> fd_;
};

// An object beneath the grant that the keeper has found for itself.
struct Located {
  HeldFd fd;         // O_PATH, opened by the keeper
  std::string path;  // from the grant, without a leading '/'; empty for the granted folder itself
  Attributes attributes{};
  std::uint64_t generation = 0;
  bool removed = false;  // it has no name any more; path is empty

  Identity identity() const { return identity_of(attributes, generation); }
  bool is_file() const { return S_ISREG(attributes.mode); }
  bool is_folder() const { return S_ISDIR(attributes.mode); }
  bool is_symlink() const { return S_ISLNK(attributes.mode); }
};

// What is at a path beneath the folder, found without following symlinks or crossing mounts; the folder
// itself for an empty path.
Checked<Located> locate_beneath(int folder_fd, const std::string& path);
// "docs/a.txt" → "docs", "a.txt"; the first is empty for what is in the granted folder itself.
std::pair<std::string, std::string> folder_and_name(const std::string& path);

// "/proc/self/fd/7": how to name an O_PATH descriptor to calls that want a path. The kernel goes straight to
// the object.
std::string descriptor_path(int fd);

}  // namespace anchorhold::mounts
