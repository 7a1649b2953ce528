// A folder tree as one value: everything that an undo must bring back.
#pragma once

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <vector>

namespace anchorhold::mounts::testing {

// By path: type, mode, owner, times, content or target, user xattrs, and the first path of the same inode.
// The root is "".
using Snapshot = std::map<std::string, std::string>;

inline std::string xattrs_of(const std::filesystem::path& path) {
  std::map<std::string, std::string> found;
  char names[4096];
  ssize_t size = llistxattr(path.c_str(), names, sizeof names);
  for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(std::string(names + at).size()) + 1) {
    char value[4096];
    ssize_t bytes = lgetxattr(path.c_str(), names + at, value, sizeof value);
    if (bytes >= 0) found[names + at] = std::string(value, static_cast<std::size_t>(bytes));
  }
  std::string text;
  for (const auto& [name, value] : found) text += name + "=" + value + ";";
  return text;
}

inline Snapshot snapshot_of(const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths{""};
  for (const auto& entry : fs::recursive_directory_iterator(root))
    paths.push_back(
        fs::relative(entry.path().parent_path(), root) == "."
            ? entry.path().filename().string()
            : (fs::relative(entry.path().parent_path(), root) / entry.path().filename()).string());
  std::sort(paths.begin(), paths.end());
  std::map<ino_t, std::string> first;
  Snapshot snapshot;
  for (const auto& path : paths) {
    fs::path full = path.empty() ? root : root / path;
    struct stat info;
    if (lstat(full.c_str(), &info) != 0) {
      ADD_FAILURE() << full;
      continue;
    }
    std::string content;
    if (S_ISREG(info.st_mode)) {
      std::ifstream in(full, std::ios::binary);
      content.assign(std::istreambuf_iterator<char>(in), {});
      if (content.size() > 200)
        content = fmt::format("{} bytes, hash {:x}", content.size(), std::hash<std::string>()(content));
    } else if (S_ISLNK(info.st_mode)) {
      content = fs::read_symlink(full).string();
    }
    auto group = first.emplace(info.st_ino, path).first->second;
    snapshot[path] = fmt::format("mode {:o} owner {} mtime {}.{:09} content [{}] xattrs [{}] same as [{}]",
                                 info.st_mode, info.st_uid, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                                 content, S_ISLNK(info.st_mode) ? "" : xattrs_of(full), group);
  }
  return snapshot;
}

// What differs, for a person; empty when nothing does.
inline std::string difference(const Snapshot& expected, const Snapshot& found) {
  std::string text;
  for (const auto& [path, what] : expected) {
    auto other = found.find(path);
    if (other == found.end())
      text += fmt::format("missing  {}: {}\n", path, what);
    else if (other->second != what)
      text += fmt::format("differs  {}:\n   expected {}\n   found    {}\n", path, what, other->second);
  }
  for (const auto& [path, what] : found)
    if (!expected.contains(path)) text += fmt::format("too much {}: {}\n", path, what);
  return text;
}

}  // namespace anchorhold::mounts::testing
