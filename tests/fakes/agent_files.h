// Granted folders in memory. Folders exist by the files below them, and by make_folder(). Owned by one
// thread.
#pragma once

#include <map>
#include <set>
#include <string>

#include "agent/file_access.h"
#include "agent/task.h"

namespace anchorhold::fakes {

class FakeFiles : public agent::FileAccess {
 public:
  void grant(const std::string& guest_path, agent::FolderMode mode);
  // Whatever the mode is.
  void put(const std::string& path, std::string bytes);
  void make_folder(const std::string& path);
  void make_symlink(const std::string& path);
  // The next accesses of this path fail.
  void deny(const std::string& path);
  std::string get(const std::string& path) const;
  bool exists(const std::string& path) const { return files_.contains(path); }

  Result<agent::FileInfo> stat(const std::string& path) override;
  Result<std::string> read(const std::string& path, std::uint64_t offset, std::size_t max_bytes) override;
  Status write(const std::string& path, std::string_view bytes) override;
  Result<agent::DirectoryListing> list(const std::string& path, std::size_t max_entries) override;

 private:
  struct Entry {
    agent::FileKind kind;
    std::string bytes;
  };
  Result<agent::FolderMode> mode_of(const std::string& path) const;

  std::map<std::string, agent::FolderMode> grants_;
  std::map<std::string, Entry> files_;
  std::set<std::string> denied_;
};

}  // namespace anchorhold::fakes
