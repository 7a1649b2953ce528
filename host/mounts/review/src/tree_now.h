// The granted folder as it is, seen through one walk: where the objects are that a ledger knows. Follows the
// changes that are made to it afterwards, so that paths stay right when a folder above is moved.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "object.h"

namespace anchorhold::mounts {

struct Node {
  Node* parent = nullptr;
  std::string name;
  Identity identity;
  Attributes attributes{};
  std::map<std::string, std::unique_ptr<Node>, std::less<>> children;

  std::string path() const;
  std::size_t depth() const;
};

class TreeNow {
 public:
  // Only what is in `wanted`, and the folders above it. only_file: as in Tree.
  TreeNow(int root, const std::string* only_file, const std::unordered_set<Identity, IdentityHash>& wanted,
          const std::function<bool(const Located&)>& unreadable);

  Node* root() { return &root_; }
  // Nothing when the walk did not come upon it; something else may be there.
  Node* find(const std::string& path);
  // All names of an object.
  std::vector<Node*> of(const Identity& identity) const;

  Node* add(const std::string& path, const Identity& identity, const Attributes& attributes);
  void move(Node* node, const std::string& path);
  void drop(Node* node);

 private:
  Node* ensure(const std::string& path);
  void forget_identity(Node* node);

  Node root_;
  std::unordered_multimap<Identity, Node*, IdentityHash> by_identity_;
};

}  // namespace anchorhold::mounts
