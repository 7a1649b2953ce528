// The host's own way into the granted folders, for its file tools: the same hidden names, the same modes, the
// same keeper as the guest's, and it works without a guest. Paths are those the guest sees
// ("/mnt/report/data.csv").
//
// Reading resolves every path with openat2 (RESOLVE_BENEATH, NO_MAGICLINKS) from the grant's descriptor: a
// symlink is followed as long as it stays in the grant. Only regular files are opened. Every change is asked
// of the keeper.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "mounts/hidden.h"
#include "mounts/keeper_client.h"
#include "mounts/mode.h"

namespace anchorhold::mounts {

enum class FileKind { file, directory, symlink, other };

struct FileInfo {
  FileKind kind = FileKind::file;
  std::uint64_t size = 0;
  std::chrono::system_clock::time_point modified{};
};

struct DirectoryEntry {
  std::string name;  // as stored: any bytes but '/' and NUL
  FileInfo info;     // of the entry itself: a symlink is not followed
};

struct DirectoryListing {
  std::vector<DirectoryEntry> entries;  // sorted by name
  bool truncated = false;               // there are more than were asked for
};

struct AccessibleGrant {
  std::string name;
  UniqueFd root;  // O_PATH
  std::optional<std::string> only_file;
  Mode mode = Mode::ro;
  HiddenNames hidden = HiddenNames::standard();
  std::shared_ptr<KeeperClient> keeper;  // none under ro
};

// Safe from any thread. Errors: not_found, already_exists, permission_denied (the mode, a hidden name's
// parent, the kernel; the message says which), invalid_argument (not below a granted folder, a folder where a
// file is needed or the other way round), resource_exhausted (quota, disk, max_bytes), unavailable (the
// keeper is gone).
class FileAccess {
 public:
  // From now on; a grant of the same name is replaced.
  void add(AccessibleGrant grant);
  void remove(const std::string& name);

  Result<FileInfo> stat(const std::string& path) const;
  // At most max_bytes from the offset; shorter only at the end of the file.
  Result<std::string> read(const std::string& path, std::uint64_t offset, std::size_t max_bytes) const;
  // The whole file, replaced or made; a reader sees the old bytes or the new ones. Missing parents are made.
  // Through a symlink in the grant, what it leads to is replaced. A single granted file is written in place.
  Status write(const std::string& path, std::string_view bytes) const;
  // "/mnt" lists the grants.
  Result<DirectoryListing> list(const std::string& path, std::size_t max_entries) const;

 private:
  std::vector<std::shared_ptr<const AccessibleGrant>> grants() const;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const AccessibleGrant>> grants_;
};

}  // namespace anchorhold::mounts
