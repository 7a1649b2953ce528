// Keeping what is about to lose its name: the object itself is moved into kept/, or gets a second name there,
// or is copied.
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

#include "content.h"
#include "ledger.h"
#include "ledger_statements.h"

namespace anchorhold::mounts {

// Everything that is noted before a loss, in one commit.
Checked<Ledger::Noted> Ledger::record_loss(const Located& folder, const std::string& name,
                                           const Located& object, bool may_move) {
  auto identity = object.identity();
  bool known_before = known_.contains(identity);
  if (known_before)
    if (auto settled = statements_->settle_row_of(known_.at(identity).id); !settled)
      return refuse_with(journal_failed(settled.error()));
  auto transaction = database::Transaction::begin(database_);
  if (!transaction) return refuse_with(journal_failed(transaction.error()));
  Noted noted;
  int error = 0;
  std::uint64_t bytes = bytes_of(object.attributes);
  bool reserved = false;
  if (auto known = known_or_recorded(object); known)
    noted.known = *known;
  else
    error = known.error();
  if (error == 0) error = note_lost(*noted.known, folder, name, object);
  const bool kept_before = noted.known && noted.known->content_kept;
  noted.done = error == 0 && kept_before;
  if (error == 0 && !noted.done) {
    if (object.is_folder() || object.is_symlink()) {
      error = set_kept(*noted.known, HowKept::in_row, "", 0);
      noted.done = true;
    } else if (may_move) {
      error = reserve(bytes);
      reserved = error == 0;
      if (reserved)
        error =
            set_kept(*noted.known, HowKept::moved, kept_file_name(noted.known->id, true, object.path), bytes);
    }
  }
  if (error == 0)
    if (auto committed = transaction->commit(); !committed) error = journal_failed(committed.error());
  if (error == 0) return noted;
  if (reserved) release(bytes);
  // What was written is taken back with the transaction.
  if (noted.known) noted.known->content_kept = kept_before;
  if (!known_before) known_.erase(identity);
  return refuse_with(error);
}

Ledger::Kept Ledger::keep_all(const Located& folder, const std::string& name, const Located& object,
                              Loss loss) {
  bool may_move = !object.is_folder() && !object.is_symlink() && object.attributes.links == 1;
  {
    std::lock_guard lock(mutex_);
    auto kept = record_loss(folder, name, object, may_move);
    if (!kept) return {kept.error(), false};
    if (kept->done) return {};
    if (may_move) {
      Kept moved = move_or_link(folder, name, object, *kept->known, loss);
      // Another file system, or a file that is not ours to link: then a copy.
      if (moved.error != EXDEV && !(moved.error == EPERM && loss == Loss::replaced)) return moved;
    }
  }
  if (object.is_file()) return {keep_content(object), false};
  // A FIFO, socket or device has no content; a second name of it stays, or it cannot be kept.
  return {object.attributes.links > 1 ? 0 : EPERM, false};
}

Ledger::Kept Ledger::move_or_link(const Located& folder, const std::string& name, const Located& object,
                                  Known& known, Loss loss) {
  std::uint64_t bytes = bytes_of(object.attributes);
  std::string kept_name = kept_file_name(known.id, true, object.path);
  int done = loss == Loss::removed
                 ? renameat2(folder.fd.get(), name.c_str(), kept_.get(), kept_name.c_str(), RENAME_NOREPLACE)
                 : linkat(AT_FDCWD, descriptor_path(object.fd.get()).c_str(), kept_.get(), kept_name.c_str(),
                          AT_SYMLINK_FOLLOW);
  int error = done == 0 ? 0 : errno;
  if (error == 0 && loss == Loss::removed) error = check_moved(kept_name, folder, name, object);
  if (error == 0) return {0, loss == Loss::removed};
  release(bytes);
  clear_kept(known);
  return {error, false};
}

// Somebody on the host may have put something else under the name in the last moment. It goes back; nothing
// is removed. Where that name is taken once more by now, it stays in kept/ and gets its row when the ledger
// is opened next.
int Ledger::check_moved(const std::string& kept_name, const Located& folder, const std::string& name,
                        const Located& object) {
  auto moved = attributes_at(kept_.get(), kept_name);
  if (moved && is_same(*moved, object.attributes)) return 0;
  renameat2(kept_.get(), kept_name.c_str(), folder.fd.get(), name.c_str(), RENAME_NOREPLACE);
  return EBUSY;
}

int Ledger::remove_name(const Located& folder, const std::string& name, const Located& object) {
  if (object.is_folder()) return unlinkat(folder.fd.get(), name.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno;
  std::lock_guard lock(mutex_);
  auto known = known_.find(object.identity());
  std::int64_t id = known == known_.end() ? statements_->next_object++ : known->second.id;
  std::string passing = kept_file_name(id, true, object.path);
  if (renameat2(folder.fd.get(), name.c_str(), kept_.get(), passing.c_str(), RENAME_NOREPLACE) != 0) {
    // Another file system: there is no such place.
    if (errno != EXDEV && errno != EINVAL) return errno;
    return unlinkat(folder.fd.get(), name.c_str(), 0) == 0 ? 0 : errno;
  }
  if (int error = check_moved(passing, folder, name, object); error != 0) return error;
  return unlinkat(kept_.get(), passing.c_str(), 0) == 0 ? 0 : errno;
}

void Ledger::take_back(const Located& object) {
  std::lock_guard lock(mutex_);
  auto found = known_.find(object.identity());
  if (found == known_.end()) return;
  auto kept = statements_->kept_of(found->second.id);
  if (!kept || kept->how != HowKept::moved) return;
  // As long as it has two names, a write to one would reach the other.
  if (unlinkat(kept_.get(), kept->name.c_str(), 0) != 0 && errno != ENOENT) return;
  release(kept->bytes);
  clear_kept(found->second);
}

}  // namespace anchorhold::mounts
