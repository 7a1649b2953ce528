#include "base/files.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"

namespace anchorhold {

namespace {

Result<UniqueFd> open_to_read(const std::filesystem::path& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno(errno, fmt::format("opening {}", path.string()));
  return fd;
}

Result<std::string> read_regular(const UniqueFd& fd, const std::filesystem::path& path,
                                 std::size_t max_bytes) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return fail_errno(errno, fmt::format("reading {}", path.string()));
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::invalid_argument, fmt::format("{} is not a regular file", path.string()));
  std::string text;
  std::size_t used = 0;
  for (;;) {
    text.resize(std::min(max_bytes + 1,
                         std::max<std::size_t>(used + 4096, static_cast<std::size_t>(info.st_size) + 1)));
    auto got = read_full(fd.get(), std::as_writable_bytes(std::span(text).subspan(used)));
    if (!got) return fail(with_context(got.error(), path.string()));
    used += *got;
    if (used > max_bytes)
      return fail(ErrorCode::resource_exhausted,
                  fmt::format("{} is larger than the {} bytes allowed here", path.string(), max_bytes));
    if (used < text.size()) break;
  }
  text.resize(used);
  return text;
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  return read_regular(ANCHORHOLD_TRY(open_to_read(path)), path, max_bytes);
}

Result<std::string> read_file_at_rest(const std::filesystem::path& path, std::size_t max_bytes) {
  UniqueFd fd = ANCHORHOLD_TRY(open_to_read(path));
  auto moves = [&] {
    return fail(ErrorCode::unavailable, fmt::format("{} is being written", path.string()));
  };
  // Whoever wants to write meanwhile waits until the lease ends with the descriptor; the signal that asks for
  // that is one that nobody minds (the usual one would end this process).
  bool leased = fcntl(fd.get(), F_SETSIG, SIGURG) == 0 && fcntl(fd.get(), F_SETLEASE, F_RDLCK) == 0;
  if (!leased && (errno == EAGAIN || errno == EBUSY)) return moves();
  struct stat before {
  }, after{};
  if (fstat(fd.get(), &before) != 0) return fail_errno(errno, fmt::format("reading {}", path.string()));
  std::string text = ANCHORHOLD_TRY(read_regular(fd, path, max_bytes));
  if (fstat(fd.get(), &after) != 0) return fail_errno(errno, fmt::format("reading {}", path.string()));
  if (before.st_mtim.tv_sec != after.st_mtim.tv_sec || before.st_mtim.tv_nsec != after.st_mtim.tv_nsec ||
      before.st_size != after.st_size || text.size() != static_cast<std::size_t>(after.st_size))
    return moves();
  return text;
}

Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes, unsigned mode) {
  auto directory = path.parent_path().empty() ? std::filesystem::path(".") : path.parent_path();
  auto temporary = directory / fmt::format(".{}.{}", path.filename().string(), random_hex(6));
  UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return fail_errno(errno, fmt::format("creating {}", temporary.string()));
  auto written = write_all(fd.get(), std::as_bytes(std::span(bytes)));
  if (written && fsync(fd.get()) != 0) written = fail_errno(errno, "fsync");
  if (written && rename(temporary.c_str(), path.c_str()) != 0) written = fail_errno(errno, "renaming");
  if (!written) {
    unlink(temporary.c_str());
    return fail(with_context(written.error(), fmt::format("writing {}", path.string())));
  }
  UniqueFd folder(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || fsync(folder.get()) != 0)
    return fail_errno(errno, fmt::format("syncing {}", directory.string()));
  return {};
}

Status make_directories(const std::filesystem::path& path, unsigned mode) {
  if (mkdir(path.c_str(), mode) == 0) return {};
  if (errno == ENOENT && path.has_parent_path() && path.parent_path() != path) {
    ANCHORHOLD_CHECK(make_directories(path.parent_path(), mode));
    if (mkdir(path.c_str(), mode) == 0) return {};
  }
  struct stat info;
  if (errno == EEXIST && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return {};
  return fail_errno(errno, fmt::format("making the folder {}", path.string()));
}

Result<TemporaryDirectory> TemporaryDirectory::create(std::string_view prefix) {
  std::error_code error;
  auto base = std::filesystem::temp_directory_path(error);
  if (error) return fail(ErrorCode::failed_precondition, "no folder for temporary files: " + error.message());
  std::string pattern = (base / fmt::format("{}-XXXXXX", prefix)).string();
  if (!mkdtemp(pattern.data())) return fail_errno(errno, fmt::format("making {}", pattern));
  return TemporaryDirectory(pattern);
}

TemporaryDirectory& TemporaryDirectory::operator=(TemporaryDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<FileLock> FileLock::acquire(const std::filesystem::path& path, Wait wait) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, fmt::format("opening the lock {}", path.string()));
  while (flock(fd.get(), LOCK_EX | (wait == Wait::no ? LOCK_NB : 0)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK)
      return fail(ErrorCode::unavailable, fmt::format("{} is locked by another process", path.string()));
    return fail_errno(errno, fmt::format("locking {}", path.string()));
  }
  return FileLock(std::move(fd));
}

}  // namespace anchorhold
