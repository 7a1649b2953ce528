// Which nodes have a descriptor: opened by their names when they are needed, and closed again when there are
// too many.
#include <fcntl.h>
#include <utility>

#include "reader/node_table.h"

namespace anchorhold::mounts {

void NodeTable::hold(const NodeRef& node, SharedFd descriptor) {
  std::vector<SharedFd> closing;
  std::lock_guard lock(mutex_);
  if (!node->descriptor_ && is_listed(node)) keep(*node, std::move(descriptor), closing);
}

bool NodeTable::holds(const NodeRef& node) const {
  std::lock_guard lock(mutex_);
  return node->descriptor_ != nullptr;
}

void NodeTable::reopen(const NodeRef& node) {
  std::vector<SharedFd> closing;
  std::lock_guard lock(mutex_);
  if (!node->pinned_) drop(*node, closing);
}

Outcome<SharedFd> NodeTable::open_step(int parent_descriptor, const Step& step) const {
  UniqueFd fd(openat(parent_descriptor, step.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return refuse(errno == ENOENT || errno == ENOTDIR ? ESTALE : errno);
  auto info = ANCHORHOLD_OUTCOME(stat_descriptor(fd.get()));
  if (identity_of(info) != step.node->identity_) return refuse(ESTALE);
  return std::make_shared<const UniqueFd>(std::move(fd));
}

Outcome<SharedFd> NodeTable::descriptor(const NodeRef& node) {
  std::vector<Step> steps;  // from the node upwards
  SharedFd base;
  {
    std::lock_guard lock(mutex_);
    NodeRef at = node;
    while (!at->descriptor_) {
      if (!at->parent_) return refuse(ESTALE);
      steps.push_back({at, at->name_});
      at = at->parent_;
    }
    base = at->descriptor_;
    if (steps.empty()) {
      auto& list = node->pinned_ ? pinned_ : cached_;
      if (node != root_) list.splice(list.end(), list, node->position_);
      return base;
    }
  }
  std::vector<SharedFd> closing;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    auto opened = ANCHORHOLD_OUTCOME(open_step(base->get(), *step));
    std::lock_guard lock(mutex_);
    if (step->node->descriptor_) {
      opened = step->node->descriptor_;
    } else if (is_listed(step->node)) {
      keep(*step->node, opened, closing);
    }
    base = std::move(opened);
  }
  return base;
}

void NodeTable::keep(Node& node, SharedFd descriptor, std::vector<SharedFd>& closing) {
  node.descriptor_ = std::move(descriptor);
  auto& list = node.pinned_ ? pinned_ : cached_;
  list.push_back(&node);
  node.position_ = std::prev(list.end());
  while (list.size() > limits_.descriptors) drop(*list.front(), closing);
}

void NodeTable::drop(Node& node, std::vector<SharedFd>& closing) {
  if (!node.descriptor_ || &node == root_.get()) return;
  (node.pinned_ ? pinned_ : cached_).erase(node.position_);
  closing.push_back(std::move(node.descriptor_));
  node.descriptor_ = nullptr;
}

void NodeTable::pin(const NodeRef& node) {
  auto held = descriptor(node);
  if (!held) return;
  std::vector<SharedFd> closing;
  std::lock_guard lock(mutex_);
  if (node->pinned_ || node == root_ || by_id_.count(node->id_) == 0) return;
  drop(*node, closing);
  forget_place(*node);
  node->pinned_ = true;
  keep(*node, std::move(*held), closing);
}

}  // namespace anchorhold::mounts
