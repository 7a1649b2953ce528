#include "fakes/agent_files.h"

#include <algorithm>

namespace anchorhold::fakes {

using agent::FileKind;

void FakeFiles::grant(const std::string& guest_path, agent::FolderMode mode) {
  grants_[guest_path] = mode;
  files_[guest_path] = {FileKind::directory, {}};
}

void FakeFiles::put(const std::string& path, std::string bytes) {
  for (auto slash = path.rfind('/'); slash != 0 && slash != path.npos; slash = path.rfind('/', slash - 1))
    files_.try_emplace(path.substr(0, slash), Entry{FileKind::directory, {}});
  files_[path] = {FileKind::file, std::move(bytes)};
}

void FakeFiles::make_folder(const std::string& path) {
  files_[path] = {FileKind::directory, {}};
}
void FakeFiles::make_symlink(const std::string& path) {
  files_[path] = {FileKind::symlink, {}};
}
void FakeFiles::deny(const std::string& path) {
  denied_.insert(path);
}

std::string FakeFiles::get(const std::string& path) const {
  auto found = files_.find(path);
  return found == files_.end() ? std::string() : found->second.bytes;
}

Result<agent::FolderMode> FakeFiles::mode_of(const std::string& path) const {
  if (denied_.contains(path)) return fail(ErrorCode::permission_denied, path + ": refused");
  for (const auto& [folder, mode] : grants_) {
    if (path == folder || path.starts_with(folder + "/")) return mode;
  }
  return fail(ErrorCode::invalid_argument, path + " is not in a granted folder");
}

Result<agent::FileInfo> FakeFiles::stat(const std::string& path) {
  if (auto mode = mode_of(path); !mode) return fail(mode.error());
  auto found = files_.find(path);
  if (found == files_.end()) return fail(ErrorCode::not_found, path + ": no such file");
  return agent::FileInfo{found->second.kind, found->second.bytes.size(), {}};
}

Result<std::string> FakeFiles::read(const std::string& path, std::uint64_t offset, std::size_t max_bytes) {
  auto info = ANCHORHOLD_TRY(stat(path));
  if (info.kind != FileKind::file) return fail(ErrorCode::invalid_argument, path + " is not a file");
  const std::string& bytes = files_[path].bytes;
  return bytes.substr(std::min<std::uint64_t>(offset, bytes.size()), max_bytes);
}

Status FakeFiles::write(const std::string& path, std::string_view bytes) {
  auto mode = ANCHORHOLD_TRY(mode_of(path));
  if (mode == agent::FolderMode::read_only)
    return fail(ErrorCode::permission_denied, path + ": the folder is read only");
  if (auto found = files_.find(path); found != files_.end() && found->second.kind == FileKind::directory)
    return fail(ErrorCode::invalid_argument, path + " is a folder");
  put(path, std::string(bytes));
  return {};
}

Result<agent::DirectoryListing> FakeFiles::list(const std::string& path, std::size_t max_entries) {
  if (path != "/mnt") {
    auto info = ANCHORHOLD_TRY(stat(path));
    if (info.kind != FileKind::directory) return fail(ErrorCode::invalid_argument, path + " is not a folder");
  }
  agent::DirectoryListing listing;
  std::string prefix = path + "/";
  for (auto entry = files_.lower_bound(prefix); entry != files_.end() && entry->first.starts_with(prefix);
       ++entry) {
    std::string name = entry->first.substr(prefix.size());
    if (name.find('/') != name.npos) continue;
    if (listing.entries.size() == max_entries) {
      listing.truncated = true;
      break;
    }
    listing.entries.push_back({name, {entry->second.kind, entry->second.bytes.size(), {}}});
  }
  std::sort(listing.entries.begin(), listing.entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return listing;
}

}  // namespace anchorhold::fakes
