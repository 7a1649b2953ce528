// The granted folder as the keeper sees it: finds where a client's descriptor really is, and opens entries,
// never leaving the folder and never following a symlink.
//
// Why a passed descriptor is not used as it came: a reader that was taken over can open O_PATH descriptors of
// anything on the machine (Landlock does not govern O_PATH). The kernel says where a descriptor is now
// (/proc/self/fd follows renames); that path is only a hint: it is walked again from the grant's own
// descriptor with openat2 (RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS), and the object found must have the
// same device and inode. So what is returned was beneath the grant at that moment, whatever names were
// swapped before or after, and the keeper goes on with its own descriptor of it. Only the host can move it
// out afterwards; the keeper's Landlock rule is checked by the kernel once more at the change itself.
//
// Where the kernel would say that an object is, is asked last: it takes longer than the walk. Before, it is
// looked for where it was.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/fd.h"
#include "mounts/hidden.h"
#include "object.h"

namespace anchorhold::mounts {

// Where objects were when they were last looked for or made, and where the granted folder was. Only hints:
// who uses one walks there, and compares. Safe from any thread.
class KnownPlaces {
 public:
  struct Place {
    std::string path;  // from the granted folder
    std::uint64_t device = 0;
  };
  std::optional<Place> find(const Attributes& attributes);
  void add(const Located& object);
  std::string root();
  void set_root(const std::string& path);

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Place> by_inode_;
  std::string root_;
};

// Safe from any thread.
class Tree {
 public:
  // root: O_PATH of the granted folder. only_file: nothing but this name exists in it.
  static Result<Tree> open(UniqueFd root, HiddenNames hidden, std::optional<std::string> only_file);

  // ESTALE when the descriptor is not beneath the grant, EACCES when it is not the one granted file. Whether
  // its names are hidden is for the caller to ask.
  Checked<Located> locate(int passed) const;
  // The entry itself (a symlink is not followed); ENOENT when there is none. EINVAL and EACCES as check_name.
  Checked<Located> entry(const Located& folder, std::string_view name) const;
  // What is at this path from the grant.
  Checked<Located> at(const std::string& path) const;
  // The same for what an own descriptor was just opened of; its fd stays empty.
  Checked<Located> made(const Located& folder, std::string_view name, int file) const;
  // May this name be used in this folder, hidden or not? 0, EINVAL (not a name) or EACCES (not the one
  // granted file).
  int check_name(const Located& folder, std::string_view name) const;
  bool hides(std::string_view name) const { return hidden_.hides(name); }
  // Where the first hidden component of a path begins; npos when there is none.
  std::size_t find_hidden(std::string_view path) const;

  int root() const { return root_.fd.get(); }
  const Attributes& root_attributes() const { return root_.attributes; }
  bool is_single_file() const { return only_file_.has_value(); }

 private:
  Checked<Located> same_at(const std::string& path, const Attributes& wanted) const;
  Checked<Located> at_known_place(const Attributes& wanted) const;
  Tree(Located root, HiddenNames hidden, std::optional<std::string> only_file)
      : root_(std::move(root)), hidden_(std::move(hidden)), only_file_(std::move(only_file)) {}
  Located root_;  // as it was in the beginning
  HiddenNames hidden_;
  std::optional<std::string> only_file_;
  std::unique_ptr<KnownPlaces> places_ = std::make_unique<KnownPlaces>();
};

// Where a symlink at path (from the grant) would lead, looking at its words only: outside when it is absolute
// or climbs above the grant.
bool symlink_escapes(std::string_view path, std::string_view target);

}  // namespace anchorhold::mounts
