// The objects of the granted folder that the guest knows: FUSE's node ids, with how to find each object
// again.
//
// A node is found by a descriptor (O_PATH) when one is held, else by its parent and name. What is found by
// name is checked against the node's identity (device, inode, birth time, and the mount it is on), so a name
// that means something else by now is ESTALE and never a different object. Descriptors are therefore a cache
// with a bound; the nodes themselves live as long as the guest counts lookups on them, up to a bound.
//
// Safe from any thread. Nothing here follows a symlink or leaves the mount the folder is on.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "reader/outcome.h"

namespace anchorhold::mounts {

using SharedFd = std::shared_ptr<const UniqueFd>;
using Statx = struct statx;

struct NodeIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t birth_seconds = 0;
  std::uint32_t birth_nanoseconds = 0;
  std::uint32_t type = 0;  // S_IFMT bits: an inode that comes back as something else is another object
  bool operator==(const NodeIdentity&) const = default;
};
NodeIdentity identity_of(const Statx& info);

struct NodeIdentityHash {
  std::size_t operator()(const NodeIdentity& identity) const;
};

// A state of a file, as far as its attributes show it. Guarded by the table.
struct CachedVersion {
  std::int64_t modify_seconds = -1;
  std::int64_t change_seconds = -1;
  std::uint32_t modify_nanoseconds = 0;
  std::uint32_t change_nanoseconds = 0;
  std::uint64_t size = 0;
  bool settled = false;
  bool operator==(const CachedVersion&) const = default;
};

class Node;
using NodeRef = std::shared_ptr<Node>;

class Node {
 public:
  Node(std::uint64_t id, NodeIdentity identity) : id_(id), identity_(identity) {}
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  std::uint64_t id() const { return id_; }
  const NodeIdentity& identity() const { return identity_; }
  bool is_directory() const { return S_ISDIR(identity_.type); }
  bool is_regular() const { return S_ISREG(identity_.type); }
  bool is_symlink() const { return S_ISLNK(identity_.type); }

 private:
  friend class NodeTable;
  const std::uint64_t id_;
  const NodeIdentity identity_;
  // Guarded by the table's mutex.
  std::uint64_t lookups_ = 0;
  NodeRef parent_;
  std::string name_;
  SharedFd descriptor_;
  bool pinned_ = false;  // the name is gone: the descriptor is the only way left to the object
  std::size_t place_hash_ = 0;
  bool placed_ = false;  // is in the table of places
  std::list<Node*>::iterator position_;
  CachedVersion cached_;  // what the guest's pages were filled from; see coherence.h
  CachedVersion told_;    // the attributes the guest was told last
};

struct NodeLimits {
  std::size_t nodes = 1u << 20;
  std::size_t descriptors = 4096;  // cached ones; pinned ones have as many again
};

class NodeTable {
 public:
  // The root descriptor is that of the granted folder.
  static Outcome<std::unique_ptr<NodeTable>> create(SharedFd root, NodeLimits limits);
  ~NodeTable();

  // ESTALE for an id that is not known.
  Outcome<NodeRef> find(std::uint64_t id) const;
  NodeRef root() const { return root_; }

  // Attributes of parent/name without following it. EACCES for a mount point: mounts are not crossed.
  Outcome<Statx> stat_at(int parent_descriptor, const std::string& name) const;
  Outcome<Statx> stat_descriptor(int descriptor) const;

  // The node of what was found at parent/name, with its lookup count raised by one. ENFILE at the bound.
  Outcome<NodeRef> enter(const Statx& info, const NodeRef& parent, std::string_view name);
  // Looks parent/name up and enters what is there, with a descriptor of it: whatever happens to the name, the
  // guest reaches what it was told of. `info` is how it is.
  Outcome<NodeRef> enter_held(int parent_descriptor, const NodeRef& parent, const std::string& name,
                              Statx& info);
  // A descriptor of the node, which has none yet: it is kept as if it had been looked up.
  void hold(const NodeRef& node, SharedFd descriptor);
  bool holds(const NodeRef& node) const;
  // The node of this identity, if the guest knows it.
  NodeRef known(const NodeIdentity& identity) const;
  // The node that was found at parent/name last, if it was not found elsewhere since.
  NodeRef at_place(const NodeRef& parent, std::string_view name) const;
  // One lookup more of a node the guest knows.
  void recall(const NodeRef& node);
  NodeRef parent(const NodeRef& node) const;
  void forget(std::uint64_t id, std::uint64_t lookups);
  // Forgets everything but the root: the guest began anew.
  void clear();

  // An O_PATH descriptor of the node; stays open while the caller holds it.
  Outcome<SharedFd> descriptor(const NodeRef& node);
  // Whether the name the node is known by still means it. One whose name went with the guest's knowledge has
  // none to compare.
  bool is_in_place(const NodeRef& node);
  // Its attributes, by descriptor or by name.
  Outcome<Statx> attributes(const NodeRef& node);

  // This name of the node is about to go. If it is the one the node is known by, the node stays reachable by
  // a descriptor; if not, it is found by the other name from now on.
  void losing_name(const NodeRef& node, const NodeRef& parent, std::string_view name);
  // Gives up a cached descriptor, whose own name may have gone: the node is opened by the name it is known
  // by.
  void reopen(const NodeRef& node);
  // The object is known by this name now.
  void renamed(const NodeRef& node, const NodeRef& parent, std::string_view name);

  // Relative to the root, for reports to people.
  std::string path(const NodeRef& node, std::string_view name = {}) const;

  CachedVersion cached_version(const NodeRef& node) const;
  void set_cached_version(const NodeRef& node, const CachedVersion& version);
  CachedVersion told_version(const NodeRef& node) const;
  void set_told_version(const NodeRef& node, const CachedVersion& version);

  std::size_t node_count() const;
  std::size_t descriptor_count() const;

 private:
  NodeTable(NodeLimits limits) : limits_(limits) {}
  struct Step {
    NodeRef node;
    std::string name;
  };
  Outcome<SharedFd> open_step(int parent_descriptor, const Step& step) const;
  // With the mutex held, these. Descriptors that were given up are moved to `closing`, to be closed
  // without the mutex.
  void keep(Node& node, SharedFd descriptor, std::vector<SharedFd>& closing);
  bool is_listed(const NodeRef& node) const;
  void drop(Node& node, std::vector<SharedFd>& closing);
  void place(const NodeRef& node, const NodeRef& parent, std::string_view name);
  void pin(const NodeRef& node);
  void note_place(Node& node);
  void forget_place(Node& node);
  bool is_child_of(const Node& node, const Node& parent) const;

  const NodeLimits limits_;
  std::uint64_t root_mount_ = 0;
  NodeRef root_;
  mutable std::mutex mutex_;
  std::uint64_t next_id_ = 2;
  std::unordered_map<std::uint64_t, NodeRef> by_id_;
  std::unordered_map<NodeIdentity, Node*, NodeIdentityHash> by_identity_;
  std::unordered_multimap<std::size_t, Node*> by_place_;  // by place_hash() of parent and name
  std::list<Node*> cached_;  // nodes with a descriptor, least recently used first
  std::list<Node*> pinned_;
};

}  // namespace anchorhold::mounts
