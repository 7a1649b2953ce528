#include "reader/handle_table.h"

namespace anchorhold::mounts {

Outcome<std::uint64_t> HandleTable::add(std::shared_ptr<FileHandle> file) {
  std::lock_guard lock(mutex_);
  if (files_.size() + folders_.size() >= limit_) return refuse(ENFILE);
  files_[next_id_] = std::move(file);
  return next_id_++;
}

Outcome<std::uint64_t> HandleTable::add(std::shared_ptr<FolderHandle> folder) {
  std::lock_guard lock(mutex_);
  if (files_.size() + folders_.size() >= limit_) return refuse(ENFILE);
  folders_[next_id_] = std::move(folder);
  return next_id_++;
}

Outcome<std::shared_ptr<FileHandle>> HandleTable::file(std::uint64_t id) const {
  std::lock_guard lock(mutex_);
  auto found = files_.find(id);
  if (found == files_.end()) return refuse(EBADF);
  return found->second;
}

Outcome<std::shared_ptr<FolderHandle>> HandleTable::folder(std::uint64_t id) const {
  std::lock_guard lock(mutex_);
  auto found = folders_.find(id);
  if (found == folders_.end()) return refuse(EBADF);
  return found->second;
}

SharedFd HandleTable::descriptor_of(const NodeRef& node) const {
  std::lock_guard lock(mutex_);
  for (const auto& [id, file] : files_)
    if (file->node == node) return SharedFd(file, &file->descriptor);
  for (const auto& [id, folder] : folders_)
    if (folder->node == node) return SharedFd(folder, &folder->descriptor);
  return nullptr;
}

bool HandleTable::remove(std::uint64_t id) {
  std::shared_ptr<FileHandle> file;  // closed without the mutex
  std::shared_ptr<FolderHandle> folder;
  std::lock_guard lock(mutex_);
  if (auto found = files_.find(id); found != files_.end()) {
    file = std::move(found->second);
    files_.erase(found);
    return true;
  }
  if (auto found = folders_.find(id); found != folders_.end()) {
    folder = std::move(found->second);
    folders_.erase(found);
    return true;
  }
  return false;
}

void HandleTable::clear() {
  std::unordered_map<std::uint64_t, std::shared_ptr<FileHandle>> files;
  std::unordered_map<std::uint64_t, std::shared_ptr<FolderHandle>> folders;
  std::lock_guard lock(mutex_);
  files_.swap(files);
  folders_.swap(folders);
}

std::size_t HandleTable::count() const {
  std::lock_guard lock(mutex_);
  return files_.size() + folders_.size();
}

}  // namespace anchorhold::mounts
