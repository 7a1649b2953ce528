// What one epoch did, as it shows in the granted folder now: for each object the names it has, the names it
// must have to be as before, and what else about it differs. Nothing is changed here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "book.h"
#include "tree_now.h"

namespace anchorhold::mounts {

// What an undo has in the way waits under such a name in the granted folder.
inline constexpr std::string_view parking_prefix = ".anchorhold-undo-moved-";

struct Item {
  ObjectRow row;
  std::vector<Node*> names;          // all it has now
  std::vector<std::string> wanted;   // names it had before; none when the epoch made it
  std::vector<Node*> surplus;        // of names: those the epoch gave it
  std::vector<std::string> missing;  // of wanted: those it does not have
  bool content_differs = false;
  bool mode_differs = false, times_differ = false, xattrs_differ = false;

  bool alive() const { return !names.empty(); }
  bool attributes_differ() const { return mode_differs || times_differ || xattrs_differ; }
  bool taken_away() const {  // by the epoch, as far as is known
    return row.removed || row.kept == HowKept::moved || !row.lost.empty();
  }
  // Where a person looks for it: what it was called, or is called when it is new.
  std::string path() const;
};

// Everything of an epoch, and the tree it was found in.
class Situation {
 public:
  static Result<Situation> find(Book& book, std::int64_t epoch, int root, int kept,
                                const std::optional<std::string>& only_file,
                                const std::function<bool(const Located&)>& unreadable = {});

  std::vector<Item>& items() { return items_; }
  TreeNow& tree() { return *tree_; }
  Item* item_of(const Identity& identity);

  // Whether this is what we left: false when somebody else changed it since.
  bool is_as_we_left_it(const Item& item, const Node& node) const;
  // The same of a folder's time stamps.
  bool times_are_as_we_left_them(const Item& item) const;

 private:
  void look_at(Item& item, int root, int kept);

  std::vector<Item> items_;
  std::unordered_map<Identity, std::size_t, IdentityHash> by_identity_;
  std::unordered_map<Identity, Remains, IdentityHash> remains_;
  std::unique_ptr<TreeNow> tree_;
  std::int64_t last_written_ns_ = 0;
  int root_ = -1;
};

// Whether two regular files hold the same; false also when one cannot be read.
bool same_content(const Located& a, const Located& b);
// The file of kept/ that holds an object's content.
Checked<Located> kept_file(int kept, const ObjectRow& row);
std::string target_of(const Located& symlink);

}  // namespace anchorhold::mounts
