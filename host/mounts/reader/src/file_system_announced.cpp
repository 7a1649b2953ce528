// Changes of the host's that the guest's agent announces to the guest's kernel. Nothing here changes anything
// but what this reader remembers of what its guest knows.
#include "reader/file_system.h"

namespace anchorhold::mounts {

Outcome<FileSystem::Before> FileSystem::announced_lookup(std::uint64_t parent_id, std::string_view name) {
  if (!is_valid_name(name)) return refuse(EINVAL);
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  if (!visible(parent, name)) return refuse(ENOENT);
  auto folder = ANCHORHOLD_OUTCOME(reach(parent));
  auto now = nodes_->stat_at(folder->get(), std::string(name));
  Before before;
  before.node = nodes_->at_place(parent, name);
  if (now && (!before.node || before.node->identity() == identity_of(*now))) return refuse(ENOENT);
  if (!before.node) return before;
  // The guest may have it open, and takes a size for true that comes with its id.
  if (auto info = attributes_now(before.node)) {
    before.info = *info;
    nodes_->recall(before.node);
  } else {
    before.node = nullptr;
  }
  return before;
}

Outcome<void> FileSystem::announced_appearance(std::uint64_t parent_id, std::string_view name,
                                               std::uint32_t type) {
  if (!is_valid_name(name)) return refuse(EINVAL);
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  if (!visible(parent, name)) return refuse(ENOENT);
  auto folder = ANCHORHOLD_OUTCOME(reach(parent));
  auto now = ANCHORHOLD_OUTCOME(nodes_->stat_at(folder->get(), std::string(name)));
  if (identity_of(now).type != type) return refuse(EIO);
  return {};
}

Outcome<void> FileSystem::announced_removal(std::uint64_t parent_id, std::string_view name) {
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  if (auto node = nodes_->at_place(parent, name)) nodes_->losing_name(node, parent, name);
  return {};
}

Outcome<void> FileSystem::announced_rename(std::uint64_t parent_id, std::string_view name,
                                           std::uint64_t new_parent_id, std::string_view new_name) {
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  auto new_parent = ANCHORHOLD_OUTCOME(find_folder(new_parent_id));
  auto moved = nodes_->at_place(parent, name);
  if (auto replaced = nodes_->at_place(new_parent, new_name); replaced && replaced != moved)
    nodes_->losing_name(replaced, new_parent, new_name);
  if (moved) nodes_->renamed(moved, new_parent, new_name);
  return {};
}

Outcome<void> FileSystem::announced_open(std::uint64_t id) {
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  if (!node->is_regular()) return refuse(node->is_directory() ? EISDIR : EACCES);
  return {};
}

}  // namespace anchorhold::mounts
