#include "tree_now.h"

#include <algorithm>

#include "tree_walk.h"

namespace anchorhold::mounts {

std::string Node::path() const {
  if (!parent) return {};
  std::string above = parent->path();
  return above.empty() ? name : above + "/" + name;
}

std::size_t Node::depth() const {
  return parent ? parent->depth() + 1 : 0;
}

TreeNow::TreeNow(int root, const std::string* only_file,
                 const std::unordered_set<Identity, IdentityHash>& wanted,
                 const std::function<bool(const Located&)>& unreadable) {
  // Asking for the handle of everything would double the time of the walk.
  std::unordered_set<std::uint64_t> inodes;
  for (const auto& identity : wanted) inodes.insert(identity.inode);
  if (auto self = locate_beneath(root, "")) {
    root_.identity = self->identity();
    root_.attributes = self->attributes;
    by_identity_.emplace(root_.identity, &root_);
  }
  auto visit = [&](const std::string& path, const Attributes& attributes, int folder,
                   const std::string& name) {
    if (!inodes.contains(attributes.inode)) return true;
    auto identity = identity_of(attributes, generation_at(folder, name));
    if (wanted.contains(identity)) add(path, identity, attributes);
    return true;
  };
  if (!only_file) {
    walk_tree(root, visit, unreadable);
    return;
  }
  // The folder it is in was not granted, and cannot be listed.
  auto file = locate_beneath(root, *only_file);
  if (file && wanted.contains(file->identity())) add(*only_file, file->identity(), file->attributes);
}

Node* TreeNow::ensure(const std::string& path) {
  if (path.empty()) return &root_;
  auto [above, name] = folder_and_name(path);
  Node* parent = ensure(above);
  auto& child = parent->children[name];
  if (!child) {
    child = std::make_unique<Node>();
    child->parent = parent;
    child->name = name;
  }
  return child.get();
}

Node* TreeNow::find(const std::string& path) {
  Node* node = &root_;
  for (std::size_t begin = 0; begin < path.size();) {
    auto end = std::min(path.find('/', begin), path.size());
    auto child = node->children.find(std::string_view(path).substr(begin, end - begin));
    if (child == node->children.end()) return nullptr;
    node = child->second.get();
    begin = end + 1;
  }
  return node;
}

std::vector<Node*> TreeNow::of(const Identity& identity) const {
  std::vector<Node*> nodes;
  auto [begin, end] = by_identity_.equal_range(identity);
  for (auto at = begin; at != end; ++at) nodes.push_back(at->second);
  return nodes;
}

Node* TreeNow::add(const std::string& path, const Identity& identity, const Attributes& attributes) {
  Node* node = ensure(path);
  node->identity = identity;
  node->attributes = attributes;
  by_identity_.emplace(identity, node);
  return node;
}

void TreeNow::forget_identity(Node* node) {
  auto [begin, end] = by_identity_.equal_range(node->identity);
  for (auto at = begin; at != end; ++at)
    if (at->second == node) {
      by_identity_.erase(at);
      return;
    }
}

void TreeNow::move(Node* node, const std::string& path) {
  auto [above, name] = folder_and_name(path);
  auto& place = node->parent->children.find(node->name)->second;
  auto owned = std::move(place);
  node->parent->children.erase(node->name);
  Node* parent = ensure(above);
  node->parent = parent;
  node->name = name;
  auto& there = parent->children[name];
  if (there)  // only ever a folder that nothing is known of but what is below it
    for (auto& [child_name, child] : there->children) {
      child->parent = node;
      node->children.emplace(child_name, std::move(child));
    }
  there = std::move(owned);
}

void TreeNow::drop(Node* node) {
  forget_identity(node);
  if (node->children.empty()) {
    node->parent->children.erase(node->name);
    return;
  }
  node->identity = {};
}

}  // namespace anchorhold::mounts
