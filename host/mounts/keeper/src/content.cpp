#include "content.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/fs.h>
#include <set>
#include <sodium/crypto_generichash.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>

namespace anchorhold::mounts {
namespace {

constexpr int copy_attempts = 3;

// copy_file_range copies nothing between some pairs of file systems; then reading and writing does.
int copy_bytes(int from, int to, off_t begin, off_t end) {
  off_t in = begin, out = begin;
  while (in < end) {
    ssize_t copied = copy_file_range(from, &in, to, &out, static_cast<std::size_t>(end - in), 0);
    if (copied > 0) continue;
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
      return errno;
    break;
  }
  std::vector<char> buffer(in < end ? 256 * 1024 : 0);
  while (in < end) {
    ssize_t got = pread(from, buffer.data(),
                        std::min<std::size_t>(buffer.size(), static_cast<std::size_t>(end - in)), in);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return 0;  // it shrank; the caller sees that it changed
    for (ssize_t done = 0; done < got;) {
      ssize_t written = pwrite(to, buffer.data() + done, static_cast<std::size_t>(got - done), in + done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      done += written;
    }
    in += got;
  }
  return 0;
}

int copy_data(int from, int to, off_t size) {
  if (ftruncate(to, size) != 0) return errno;
  off_t position = 0;
  while (position < size) {
    off_t data = lseek(from, position, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return 0;  // only a hole is left
    if (data < 0) return copy_bytes(from, to, position, size);
    off_t hole = lseek(from, data, SEEK_HOLE);
    if (hole < 0) hole = size;
    if (int error = copy_bytes(from, to, data, std::min(hole, size)); error != 0) return error;
    position = hole;
  }
  return 0;
}

Checked<bool> copy_into(int from, int to) {
  if (ioctl(to, FICLONE, from) == 0) return true;
  for (int attempt = 1;; ++attempt) {
    auto before = attributes_of(from);
    if (!before) return refuse_with(before.error());
    if (ftruncate(to, 0) != 0) return refuse_with(errno);
    if (int error = copy_data(from, to, static_cast<off_t>(before->size)); error != 0)
      return refuse_with(error);
    auto after = attributes_of(from);
    if (!after) return refuse_with(after.error());
    if (unchanged(*before, *after)) return false;
    if (attempt == copy_attempts) return refuse_with(EBUSY);
  }
}

// A mode says what its owner may do, who can change it for the moment.
UniqueFd open_even_when_closed(const Located& file) {
  std::string path = descriptor_path(file.fd.get());
  auto open_it = [&] { return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)); };
  auto fd = open_it();
  if (fd || errno != EACCES) return fd;
  const mode_t mode = file.attributes.mode & 07777;
  if (chmod(path.c_str(), mode | S_IRUSR) != 0) {
    errno = EACCES;
    return {};
  }
  fd = open_it();
  int error = errno;
  (void)chmod(path.c_str(), mode);
  errno = error;
  return fd;
}

}  // namespace

std::uint64_t bytes_of(const Attributes& attributes) {
  return S_ISREG(attributes.mode) ? std::min(attributes.size, attributes.blocks * 512) : 0;
}

bool unchanged(const Attributes& before, const Attributes& now) {
  return before.size == now.size && before.modify_time == now.modify_time &&
         before.change_time == now.change_time;
}

Checked<bool> keep_copy(const Located& object, int kept_folder, const std::string& name, Durable durable) {
  UniqueFd from = open_even_when_closed(object);
  if (!from) return refuse_with(errno);
  std::string unfinished = std::string(unfinished_prefix) + name.substr(0, 16);
  UniqueFd to(
      openat(kept_folder, unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!to) return refuse_with(errno);
  auto copied = copy_into(from.get(), to.get());
  int error = copied ? 0 : copied.error();
  if (error == 0 && durable == Durable::now && fsync(to.get()) != 0) error = errno;
  if (error == 0 && renameat(kept_folder, unfinished.c_str(), kept_folder, name.c_str()) != 0) error = errno;
  if (error == 0 && durable == Durable::now && fsync(kept_folder) != 0) error = errno;
  if (error == 0) return *copied;
  unlinkat(kept_folder, unfinished.c_str(), 0);
  return refuse_with(error);
}

int copy_content(int from, int to) {
  auto copied = copy_into(from, to);
  return copied ? 0 : copied.error();
}

Checked<std::string> content_hash(const Located& file) {
  UniqueFd fd(open(descriptor_path(file.fd.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return refuse_with(errno);
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, crypto_generichash_BYTES);
  std::vector<unsigned char> buffer(std::clamp<std::size_t>(file.attributes.size, 4096, 256 * 1024));
  for (off_t position = 0;;) {
    ssize_t got = pread(fd.get(), buffer.data(), buffer.size(), position);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse_with(errno);
    if (got == 0) break;
    crypto_generichash_update(&state, buffer.data(), static_cast<std::size_t>(got));
    position += got;
  }
  std::string hash(crypto_generichash_BYTES, '\0');
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(hash.data()), hash.size());
  return hash;
}

std::string user_xattrs(const Located& object) {
  std::string blob;
  if (!object.is_file() && !object.is_folder()) return blob;
  std::string path = descriptor_path(object.fd.get());
  if (listxattr(path.c_str(), nullptr, 0) <= 0) return blob;
  std::string names(65536, '\0'), value(65536, '\0');
  ssize_t size = listxattr(path.c_str(), names.data(), names.size());
  for (ssize_t at = 0; at < size;) {
    std::string name(names.c_str() + at);
    at += static_cast<ssize_t>(name.size()) + 1;
    if (!name.starts_with("user.")) continue;
    ssize_t value_size = getxattr(path.c_str(), name.c_str(), value.data(), value.size());
    if (value_size < 0) continue;
    auto sizes = std::pair(static_cast<std::uint16_t>(name.size()), static_cast<std::uint32_t>(value_size));
    blob.append(reinterpret_cast<const char*>(&sizes.first), sizeof sizes.first);
    blob.append(reinterpret_cast<const char*>(&sizes.second), sizeof sizes.second);
    blob.append(name).append(value, 0, static_cast<std::size_t>(value_size));
  }
  return blob;
}

int set_user_xattrs(const Located& object, std::string_view xattrs) {
  std::string present = user_xattrs(object);
  if (present == xattrs) return 0;
  std::string path = descriptor_path(object.fd.get());
  auto next = [](std::string_view& text, std::string& name, std::string& value) {
    std::uint16_t name_size;
    std::uint32_t value_size;
    if (text.size() < sizeof name_size + sizeof value_size) return false;
    std::memcpy(&name_size, text.data(), sizeof name_size);
    std::memcpy(&value_size, text.data() + sizeof name_size, sizeof value_size);
    text.remove_prefix(sizeof name_size + sizeof value_size);
    if (text.size() < name_size || text.size() - name_size < value_size) return false;
    name = text.substr(0, name_size);
    value = text.substr(name_size, value_size);
    text.remove_prefix(name_size + value_size);
    return name.starts_with("user.") && name.find('\0') == std::string::npos;
  };
  std::string name, value;
  std::set<std::string> wanted;
  while (!xattrs.empty()) {
    if (!next(xattrs, name, value)) return EINVAL;
    if (setxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0) != 0) return errno;
    wanted.insert(name);
  }
  std::string_view rest = present;
  while (!rest.empty() && next(rest, name, value))
    if (!wanted.contains(name) && removexattr(path.c_str(), name.c_str()) != 0 && errno != ENODATA)
      return errno;
  return 0;
}

}  // namespace anchorhold::mounts
