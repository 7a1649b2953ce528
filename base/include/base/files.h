// Files of our own state: read whole with a limit, replaced whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold {

// Refuses files larger than the limit, and anything that is not a regular file.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes);
// The same, but never half of what somebody is just writing: unavailable while another process has it open
// for writing, as far as the file system tells (a read lease, fcntl(2), which only the owner of the file
// gets), and when it changed while it was read.
Result<std::string> read_file_at_rest(const std::filesystem::path& path, std::size_t max_bytes);
// Written to a temporary name beside the target, fsynced, renamed over it, and the folder fsynced: after a
// crash the file holds the old text or the new text.
Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes, unsigned mode = 0600);
// Makes the folder and its parents; the last one gets the mode.
Status make_directories(const std::filesystem::path& path, unsigned mode = 0700);

// A folder that is removed with everything in it at the end of its life.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> create(std::string_view prefix = "anchorhold");
  TemporaryDirectory(TemporaryDirectory&&) noexcept = default;
  TemporaryDirectory& operator=(TemporaryDirectory&&) noexcept;
  ~TemporaryDirectory();
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// An advisory lock (flock(2)) on a file that is made if needed; released with the object, also when the
// process dies.
class FileLock {
 public:
  enum class Wait { no, yes };
  // With Wait::no, a lock that somebody else holds is ErrorCode::unavailable.
  static Result<FileLock> acquire(const std::filesystem::path& path, Wait wait);

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace anchorhold
