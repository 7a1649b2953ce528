#include "libvirt/bounded_log.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <vector>

namespace anchorhold::hypervisor {
namespace {

Status write_at(int fd, std::span<const std::byte> bytes, std::size_t offset) {
  while (!bytes.empty()) {
    ssize_t count = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail_errno(count < 0 ? errno : EIO, "writing the console log");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace

Result<BoundedLog> BoundedLog::create(const std::filesystem::path& path, ByteSize limit) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, fmt::format("making the console log {}", path.string()));
  return BoundedLog(std::move(fd), limit.bytes);
}

Status BoundedLog::append(std::span<const std::byte> bytes) {
  if (size_ + bytes.size() <= limit_) {
    ANCHORHOLD_CHECK(write_at(fd_.get(), bytes, size_));
    size_ += bytes.size();
    return {};
  }
  const std::size_t kept = limit_ / 2;
  if (bytes.size() > kept) bytes = bytes.last(kept);
  std::vector<std::byte> tail(std::min(kept - bytes.size(), size_));
  std::size_t read = 0;
  while (read < tail.size()) {
    ssize_t count = pread(fd_.get(), tail.data() + read, tail.size() - read,
                          static_cast<off_t>(size_ - tail.size() + read));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    read += static_cast<std::size_t>(count);
  }
  tail.resize(read);
  tail.insert(tail.end(), bytes.begin(), bytes.end());
  ANCHORHOLD_CHECK(write_at(fd_.get(), tail, 0));
  size_ = tail.size();
  if (ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0)
    return fail_errno(errno, "shortening the console log");
  return {};
}

}  // namespace anchorhold::hypervisor
