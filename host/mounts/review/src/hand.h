// The hand that undoes: every change to the granted folder that an undo makes. What a change would lose is
// kept first, as the session's keeper does it, in an epoch of its own of the same ledger: so an undo can be
// undone.
//
// Each call walks to its place anew, beneath the grant and without following symlinks, and acts only when the
// object found there is the expected one. Results are 0 or an errno value.
#pragma once

#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "book.h"
#include "ledger.h"
#include "tree_now.h"

namespace anchorhold::mounts {

// Belongs to one thread. The destructor ends the epoch.
class Hand {
 public:
  Hand(int root, const std::filesystem::path& kept_folder, std::unique_ptr<Ledger> ledger, Book& book)
      : root_(root),
        kept_folder_(open(kept_folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
        kept_(kept_folder_.get()),
        ledger_(std::move(ledger)),
        book_(book) {}

  // This epoch has touched it, perhaps before it was killed.
  bool has_begun(const Identity& identity) const { return ledger_->knows(identity); }
  // So that this person can look into it and change names there.
  int open_up(const Located& folder);

  int remove(const std::string& path, const Identity& expected);
  int move(const std::string& path, const Identity& expected, const std::string& new_path);
  int link(const std::string& path, const Identity& expected, const std::string& new_path);
  // The copies that stay in kept/ of what is put back from there, durable together: one sync, not one for
  // each file. What cannot be copied is copied, or fails, when it is put back.
  void prepare_to_make_again(const std::vector<const ObjectRow*>& rows);
  // The object of this row, which is nowhere any more, at this path: with its content and attributes; a
  // folder empty, and open to this person. Its new identity is known to the book before it has its name.
  Checked<Located> make_again(const ObjectRow& row, const std::string& path);
  // What is about to be restored, kept together for the same reason.
  void prepare_contents(const std::vector<Ledger::Place>& places) {
    copied_as_ = ledger_->keep_contents(places);
  }
  // Nothing is made: what is there is as it was, and stands for it from now on.
  int adopt(const ObjectRow& row, const Located& found);
  int restore_content(const std::string& path, const ObjectRow& row);
  int restore_attributes(const std::string& path, const ObjectRow& row, bool times);

 private:
  Checked<Located> folder_for(const std::string& path);
  Checked<Located> expected_at(const std::string& path, const Identity& expected);
  int record(const Located& object);
  Checked<Located> make_file(const ObjectRow& row, const Located& folder, const std::string& path);
  Checked<Located> put_back(const ObjectRow& row, const Located& folder, const std::string& path);
  // What stays in kept/ when the object itself is put back.
  int keep_twin(const Located& file, const ObjectRow& row);
  Checked<Located> make_other(const ObjectRow& row, const Located& folder, const std::string& path);
  int set_attributes(const Located& object, const ObjectRow& row, bool times);
  int become(const ObjectRow& row, const Located& object);

  const int root_;
  const UniqueFd kept_folder_;
  const int kept_;
  const std::unique_ptr<Ledger> ledger_;
  Book& book_;
  std::unordered_set<std::int64_t> copied_;  // rows with a durable copy in kept/
  std::unordered_map<Identity, Attributes, IdentityHash> copied_as_;
};

}  // namespace anchorhold::mounts
