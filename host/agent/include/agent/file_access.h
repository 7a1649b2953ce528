// The agent's only way to files: absolute paths as the guest sees them ("/mnt/report/data.csv"), judged by
// the same policy and written through the same keeper as the guest's own accesses, so that the host side can
// do nothing the guest could not. The session implements it over the mounts; tests over a map. Called from
// the thread that runs the task.
//
// Errors: not_found, already_exists, permission_denied (the grant's mode or policy refuses; the message says
// which), invalid_argument (not below a granted folder, a folder where a file is needed or the other way
// round), resource_exhausted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace anchorhold::agent {

enum class FileKind { file, directory, symlink, other };

struct FileInfo {
  FileKind kind = FileKind::file;
  std::uint64_t size = 0;
  WallTime modified{};
};

struct DirectoryEntry {
  std::string name;  // one component, as stored; may be any bytes except '/' and NUL
  FileInfo info;     // of the entry itself: symlinks are not followed
};

struct DirectoryListing {
  std::vector<DirectoryEntry> entries;  // sorted by name
  bool truncated = false;               // there are more than were asked for
};

class FileAccess {
 public:
  virtual ~FileAccess() = default;

  // Follows symlinks as far as the grant allows.
  virtual Result<FileInfo> stat(const std::string& path) = 0;
  // At most max_bytes from the offset; shorter only at the end of the file.
  virtual Result<std::string> read(const std::string& path, std::uint64_t offset, std::size_t max_bytes) = 0;
  // The whole file, replaced or made; a reader sees the old bytes or the new ones. Missing parents are made.
  virtual Status write(const std::string& path, std::string_view bytes) = 0;
  // "/mnt" lists the granted folders.
  virtual Result<DirectoryListing> list(const std::string& path, std::size_t max_entries) = 0;
};

}  // namespace anchorhold::agent
