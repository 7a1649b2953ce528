#include "reader/node_table.h"

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <functional>
#include <utility>

namespace anchorhold::mounts {
namespace {

constexpr unsigned statx_mask = STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID;
constexpr int statx_flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;

std::uint64_t device_of(const Statx& info) {
  return (static_cast<std::uint64_t>(info.stx_dev_major) << 32) | info.stx_dev_minor;
}

std::size_t hash_of_place(const NodeIdentity& parent, std::string_view name) {
  return NodeIdentityHash{}(parent)*31 + std::hash<std::string_view>{}(name);
}

}  // namespace

NodeIdentity identity_of(const Statx& info) {
  NodeIdentity identity;
  identity.device = device_of(info);
  identity.inode = info.stx_ino;
  identity.type = info.stx_mode & S_IFMT;
  if (info.stx_mask & STATX_BTIME) {
    identity.birth_seconds = info.stx_btime.tv_sec;
    identity.birth_nanoseconds = info.stx_btime.tv_nsec;
  }
  return identity;
}

std::size_t NodeIdentityHash::operator()(const NodeIdentity& identity) const {
  std::uint64_t hash = identity.inode * 0x9e3779b97f4a7c15ull;
  hash ^= (identity.device + static_cast<std::uint64_t>(identity.birth_seconds)) * 0xc2b2ae3d27d4eb4full;
  hash ^= identity.birth_nanoseconds;
  return hash ^ (hash >> 29);
}

// A chain of parents can be as long as the guest likes to make it, so it must not be destroyed by recursion.
Node::~Node() {
  NodeRef ancestor = std::move(parent_);
  while (ancestor && ancestor.use_count() == 1) {
    std::atomic_thread_fence(std::memory_order_acquire);
    ancestor = std::move(ancestor->parent_);
  }
}

Outcome<std::unique_ptr<NodeTable>> NodeTable::create(SharedFd root, NodeLimits limits) {
  Statx info;
  if (statx(root->get(), "", AT_EMPTY_PATH | statx_flags, statx_mask, &info) != 0) return refuse(errno);
  std::unique_ptr<NodeTable> table(new NodeTable(limits));
  table->root_mount_ = info.stx_mnt_id;
  table->root_ = std::make_shared<Node>(1, identity_of(info));
  table->root_->descriptor_ = std::move(root);
  table->root_->lookups_ = 1;
  table->by_id_[1] = table->root_;
  table->by_identity_[table->root_->identity_] = table->root_.get();
  return table;
}

NodeTable::~NodeTable() {
  clear();
}

Outcome<NodeRef> NodeTable::find(std::uint64_t id) const {
  std::lock_guard lock(mutex_);
  auto found = by_id_.find(id);
  if (found == by_id_.end()) return refuse(ESTALE);
  return found->second;
}

Outcome<Statx> NodeTable::stat_at(int parent_descriptor, const std::string& name) const {
  Statx info;
  if (statx(parent_descriptor, name.c_str(), statx_flags, statx_mask, &info) != 0) return refuse(errno);
  if (info.stx_mnt_id != root_mount_) return refuse(EACCES);
  return info;
}

Outcome<Statx> NodeTable::stat_descriptor(int descriptor) const {
  Statx info;
  if (statx(descriptor, "", AT_EMPTY_PATH | statx_flags, statx_mask, &info) != 0) return refuse(errno);
  if (info.stx_mnt_id != root_mount_) return refuse(EACCES);
  return info;
}

Outcome<NodeRef> NodeTable::enter(const Statx& info, const NodeRef& parent, std::string_view name) {
  auto identity = identity_of(info);
  std::vector<SharedFd> closing;
  std::lock_guard lock(mutex_);
  if (auto found = by_identity_.find(identity); found != by_identity_.end()) {
    auto node = by_id_.at(found->second->id_);
    ++node->lookups_;
    // A descriptor belongs to the name it was opened by, which may be gone by now.
    if (node->pinned_ || node->name_ != name || !is_child_of(*node, *parent)) drop(*node, closing);
    place(node, parent, name);
    return node;
  }
  if (by_id_.size() >= limits_.nodes) return refuse(ENFILE);
  auto node = std::make_shared<Node>(next_id_++, identity);
  node->lookups_ = 1;
  node->parent_ = parent;
  node->name_ = name;
  by_id_[node->id_] = node;
  by_identity_[identity] = node.get();
  note_place(*node);
  return node;
}

Outcome<NodeRef> NodeTable::enter_held(int parent_descriptor, const NodeRef& parent, const std::string& name,
                                       Statx& info) {
  UniqueFd fd(openat(parent_descriptor, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return refuse(errno);
  info = ANCHORHOLD_OUTCOME(stat_descriptor(fd.get()));
  auto node = ANCHORHOLD_OUTCOME(enter(info, parent, name));
  hold(node, std::make_shared<const UniqueFd>(std::move(fd)));
  return node;
}

bool NodeTable::is_listed(const NodeRef& node) const {
  auto found = by_id_.find(node->id_);
  return found != by_id_.end() && found->second == node;
}

void NodeTable::note_place(Node& node) {
  if (!node.parent_) return forget_place(node);
  auto hash = hash_of_place(node.parent_->identity_, node.name_);
  if (node.placed_ && node.place_hash_ == hash) return;
  forget_place(node);
  node.place_hash_ = hash;
  node.placed_ = true;
  by_place_.emplace(hash, &node);
}

void NodeTable::forget_place(Node& node) {
  if (!std::exchange(node.placed_, false)) return;
  auto [first, last] = by_place_.equal_range(node.place_hash_);
  auto found = std::find_if(first, last, [&](const auto& entry) { return entry.second == &node; });
  if (found != last) by_place_.erase(found);
}

NodeRef NodeTable::at_place(const NodeRef& parent, std::string_view name) const {
  std::lock_guard lock(mutex_);
  auto [first, last] = by_place_.equal_range(hash_of_place(parent->identity_, name));
  for (auto it = first; it != last; ++it)
    if (it->second->name_ == name && is_child_of(*it->second, *parent)) return by_id_.at(it->second->id_);
  return nullptr;
}

void NodeTable::recall(const NodeRef& node) {
  std::lock_guard lock(mutex_);
  if (by_id_.contains(node->id_)) ++node->lookups_;
}

NodeRef NodeTable::parent(const NodeRef& node) const {
  std::lock_guard lock(mutex_);
  return node->parent_;
}

void NodeTable::place(const NodeRef& node, const NodeRef& parent, std::string_view name) {
  if (node == root_ || parent == node) return;
  if (node->is_directory()) {
    // What we remember of the folders above may be out of date when the host moved them. The newest fact
    // stands: a chain that would lead back to the node is cut.
    for (Node* at = parent.get(); at; at = at->parent_.get())
      if (at->parent_ == node) {
        forget_place(*at);
        at->parent_ = nullptr;
      }
  }
  node->parent_ = parent;
  if (node->name_ != name) node->name_ = name;
  note_place(*node);
  if (!node->pinned_) return;
  node->pinned_ = false;
  if (node->descriptor_) cached_.splice(cached_.end(), pinned_, node->position_);
}

bool NodeTable::is_child_of(const Node& node, const Node& parent) const {
  return node.parent_ && node.parent_->identity_ == parent.identity_;
}

void NodeTable::losing_name(const NodeRef& node, const NodeRef& parent, std::string_view name) {
  {
    std::vector<SharedFd> closing;
    std::lock_guard lock(mutex_);
    if (node->name_ != name || !is_child_of(*node, *parent)) {
      if (!node->pinned_) drop(*node, closing);
      return;
    }
  }
  pin(node);
  std::lock_guard lock(mutex_);
  forget_place(*node);
}

NodeRef NodeTable::known(const NodeIdentity& identity) const {
  std::lock_guard lock(mutex_);
  auto found = by_identity_.find(identity);
  return found == by_identity_.end() ? nullptr : by_id_.at(found->second->id_);
}

void NodeTable::forget(std::uint64_t id, std::uint64_t lookups) {
  NodeRef gone;  // destroyed without the mutex
  std::vector<SharedFd> closing;
  std::lock_guard lock(mutex_);
  auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second == root_) return;
  Node& node = *found->second;
  node.lookups_ -= std::min(node.lookups_, lookups);
  if (node.lookups_ > 0) return;
  forget_place(node);
  by_identity_.erase(node.identity_);
  gone = std::move(found->second);
  by_id_.erase(found);
  // A folder that is still the parent of known nodes lives on without an id, and without a place on the
  // lists, which hold plain pointers.
  drop(node, closing);
}

void NodeTable::clear() {
  std::unordered_map<std::uint64_t, NodeRef> gone;
  std::vector<SharedFd> closing;
  std::lock_guard lock(mutex_);
  for (auto& [id, node] : by_id_) {
    node->placed_ = false;
    if (node != root_) drop(*node, closing);
  }
  by_place_.clear();
  by_id_.swap(gone);
  by_identity_.clear();
  by_id_[1] = root_;
  by_identity_[root_->identity_] = root_.get();
}

Outcome<Statx> NodeTable::attributes(const NodeRef& node) {
  NodeRef parent;
  std::string name;
  SharedFd own;
  {
    std::lock_guard lock(mutex_);
    own = node->descriptor_;
    parent = node->parent_;
    name = node->name_;
  }
  if (own) return stat_descriptor(own->get());
  if (!parent) return refuse(ESTALE);
  auto folder = ANCHORHOLD_OUTCOME(descriptor(parent));
  auto info = stat_at(folder->get(), name);
  if (!info) return refuse(info.error() == ENOENT ? ESTALE : info.error());
  if (identity_of(*info) != node->identity()) return refuse(ESTALE);
  return info;
}

bool NodeTable::is_in_place(const NodeRef& node) {
  NodeRef parent;
  std::string name;
  {
    std::lock_guard lock(mutex_);
    if (node->pinned_ || !node->parent_) return true;
    parent = node->parent_;
    name = node->name_;
  }
  auto folder = descriptor(parent);
  auto info = folder ? stat_at((*folder)->get(), name) : Outcome<Statx>(refuse(folder.error()));
  return info && identity_of(*info) == node->identity();
}

void NodeTable::renamed(const NodeRef& node, const NodeRef& parent, std::string_view name) {
  NodeRef old_parent;
  std::lock_guard lock(mutex_);
  if (!by_id_.contains(node->id_)) return;
  old_parent = node->parent_;
  place(node, parent, name);
}

std::string NodeTable::path(const NodeRef& node, std::string_view name) const {
  constexpr std::size_t long_enough = 4096;
  std::string path(name);
  std::lock_guard lock(mutex_);
  for (const Node* at = node.get(); at->parent_ && path.size() < long_enough; at = at->parent_.get())
    path = path.empty() ? at->name_ : at->name_ + "/" + path;
  return path;
}

CachedVersion NodeTable::cached_version(const NodeRef& node) const {
  std::lock_guard lock(mutex_);
  return node->cached_;
}

void NodeTable::set_cached_version(const NodeRef& node, const CachedVersion& version) {
  std::lock_guard lock(mutex_);
  node->cached_ = version;
}

CachedVersion NodeTable::told_version(const NodeRef& node) const {
  std::lock_guard lock(mutex_);
  return node->told_;
}

void NodeTable::set_told_version(const NodeRef& node, const CachedVersion& version) {
  std::lock_guard lock(mutex_);
  node->told_ = version;
}

std::size_t NodeTable::node_count() const {
  std::lock_guard lock(mutex_);
  return by_id_.size();
}

std::size_t NodeTable::descriptor_count() const {
  std::lock_guard lock(mutex_);
  return cached_.size() + pinned_.size();
}

}  // namespace anchorhold::mounts
